#!/usr/bin/env bash
# broker.sh work [ackclient flags] | broker.sh check [ackclient flags]
# What the loops of this folder run to try a broker. "work" starts it and produces to it until both
# are killed, or with -records N until so many are sent, and then stops it. "check" starts it, reads
# everything back, compares with what was acknowledged, and stops it by SIGTERM. As in
#   export BROKER='exec varve serve --data-dir "$FAULT_DIR" --listen 127.0.0.1:$PORT' PORT=21400
#   e2e/faults/powercut.sh --verify 'e2e/faults/broker.sh check' -- e2e/faults/broker.sh work
# BROKER is a shell line that becomes the broker; READY_S is how long its start may take (10);
# BROKER_STATUS is its exit status after SIGTERM (0; a JVM: 143). More flags, for both verbs:
# -partitions N, -acks all|all-plain|1, -rate N, -size N, -txn N (transactions of about N records).
# SIGTERM to "work" stops the broker while its clients are at work, and wants its exit status.
# Broker output goes to $FAULT_LOG/broker.log, acknowledgements to $FAULT_LOG/acked.acked.

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ $# -gt 0 ] && [ -n "${BROKER:-}" ] && [ -n "${PORT:-}" ] && [ -n "${FAULT_DIR:-}" ] || usage
verb=$1
shift
client=$(tool ackclient)
said=$(stat -c %s "$FAULT_LOG/broker.log" 2>/dev/null || echo 0)
bash -c "$BROKER" >>"$FAULT_LOG/broker.log" 2>&1 </dev/null &
broker=$!
defer 'kill -KILL "$broker" 2>/dev/null'

# stopped ends the broker by SIGTERM and fails when its status is not the expected one.
stopped() {
  local ended=0
  kill -TERM "$broker" 2>/dev/null || true
  wait "$broker" || ended=$?
  [ "$ended" = "${BROKER_STATUS:-0}" ] && return 0 # in a trap, return alone gives the status before it
  # Told to stop before its first word: a process that has not begun dies of the signal.
  [ "$ended" = 143 ] && [ "$(stat -c %s "$FAULT_LOG/broker.log")" = "$said" ] && return 0
  note "the broker ended with $(described "$ended")"
  tail -5 "$FAULT_LOG/broker.log" >&2
  return 1
}

case $verb in
  work)
    # The broker and this script die together, by the kill of the process group or here.
    producer=''
    trap 'trap "" TERM; code=0; stopped || code=1; [ -z "$producer" ] || kill -KILL "$producer" 2>/dev/null || true; exit $code' TERM
    : >"$FAULT_LOG/begun.${FAULT_CYCLE:-0}" # from here on SIGTERM is handled
    "$client" produce -addr "127.0.0.1:$PORT" -wait "${READY_S:-10}s" "$@" &
    producer=$! first='' status=0
    wait -n -p first "$broker" "$producer" || status=$?
    if [ "$first" = "$broker" ]; then # by itself: a fault it could not survive
      kill -KILL "$producer" 2>/dev/null || true
      [ "$status" != 0 ] || status=1
      exit "$status"
    fi
    stopped || exit 1
    exit "$status" ;;
  check)
    "$client" verify -addr "127.0.0.1:$PORT" -wait "${READY_S:-10}s" "$@" &
    reader=$! first='' status=0
    wait -n -p first "$broker" "$reader" || status=$?
    if [ "$first" = "$broker" ]; then # there is nobody to ask any more
      kill -KILL "$reader" 2>/dev/null || true
      note "the broker ended with $(described "$status")"
      tail -5 "$FAULT_LOG/broker.log" >&2
      exit 1
    fi
    stopped || status=1
    exit "$status" ;;
  *) usage ;;
esac
