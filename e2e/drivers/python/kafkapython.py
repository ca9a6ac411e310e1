"""Drives kafka-python for the scenarios of e2e."""

import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from lines import Unsupported, b64, serve, unb64

member = None


def record(m):
    return {
        "partition": m.partition, "offset": m.offset, "timestamp": m.timestamp, "key": b64(m.key), "value": b64(m.value),
        "headers": [{"key": k, "value": b64(v)} for k, v in m.headers or []],
    }


def take(consumer, count, timeout_ms):
    records, until = [], time.monotonic() + timeout_ms / 1000
    while len(records) < count and time.monotonic() < until:
        for batch in consumer.poll(timeout_ms=200, max_records=count - len(records)).values():
            records += [record(m) for m in batch]
    return records


def produce(r):
    codec = r.get("codec") or "none"
    acks = r.get("acks") or "all"
    p = KafkaProducer(bootstrap_servers=r["bootstrap"], compression_type=None if codec == "none" else codec, acks=acks if acks == "all" else int(acks), linger_ms=5,
                      max_request_size=64 << 20, enable_idempotence=bool(r.get("idempotent")))
    try:
        futures = [p.send(r["topic"], partition=x["partition"], key=unb64(x["key"]), value=unb64(x["value"]), timestamp_ms=x["timestamp"] or None,
                          headers=[(h["key"], unb64(h["value"])) for h in x.get("headers") or []]) for x in r["records"]]
        p.flush(60)
        done = [f.get(60) for f in futures]
        return {"records": [{"partition": m.partition, "offset": m.offset} for m in done]}
    finally:
        p.close()


def consume(r):
    c = KafkaConsumer(bootstrap_servers=r["bootstrap"], enable_auto_commit=False, max_partition_fetch_bytes=64 << 20)
    try:
        tp = TopicPartition(r["topic"], r["partition"])
        c.assign([tp])
        if r["from"] == "offset":
            c.seek(tp, r["value"])
        elif r["from"] == "time":
            c.seek(tp, c.offsets_for_times({tp: r["value"]})[tp].offset)
        else:
            c.seek_to_beginning(tp)
        return {"records": take(c, r["count"], r["timeoutMs"])}
    finally:
        c.close()


def group(r):
    global member
    op = r["op"]
    if op == "join":
        member = KafkaConsumer(*r["topics"], bootstrap_servers=r["bootstrap"], group_id=r["group"], enable_auto_commit=False, auto_offset_reset="earliest",
                               session_timeout_ms=10000, heartbeat_interval_ms=500)
    elif op == "poll":
        records = take(member, r["count"], r["timeoutMs"])
        return {"records": records, "assignment": [{"topic": tp.topic, "partition": tp.partition} for tp in member.assignment()]}
    elif op == "commit":
        member.commit()
    else:
        member.close()
    return {}


def admin(r):
    a, op = KafkaAdminClient(bootstrap_servers=r["bootstrap"]), r["op"]
    try:
        if op == "create":
            a.create_topics([NewTopic(r["topic"], r["partitions"], 1, topic_configs=r.get("configs") or {})])
            return {}
        if op == "delete-records":
            a.delete_records({TopicPartition(r["topic"], r["partition"]): r["value"]})
            return {}
        if op == "configs":
            return {"configs": described(a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"])], config_filter="all"), r["topic"])}
        if op == "alter-configs":
            a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, r["topic"], configs=r["configs"])])
            return {}
        if op == "groups":
            return {"groups": [g["group_id"] if isinstance(g, dict) else g[0] for g in a.list_groups()]}
        if op == "describe-group":
            g = a.describe_groups([r["group"]])
            g = list(g.values())[0] if isinstance(g, dict) else g[0]
            if not isinstance(g, dict):
                g = g._asdict()
            return {"state": g.get("group_state") or g.get("state"), "members": len(g["members"])}
    finally:
        a.close()
    raise Unsupported(op)


def described(answer, topic):
    """The shape of the answer differs between releases of the library: find the settings of topic in it."""
    found = {}

    def walk(x):
        if isinstance(x, dict):
            if topic in x and isinstance(x[topic], dict):
                for k, v in x[topic].items():
                    found[k] = (v.get("value") if isinstance(v, dict) else v) or ""
                return
            for v in x.values():
                walk(v)
        elif isinstance(x, (list, tuple)):
            for v in x:
                walk(v)

    walk(answer)
    return found


def handle(r):
    op = r["op"]
    if op == "hello":
        return {"client": "kafka-python", "version": kafka.__version__}
    if op == "produce":
        return produce(r)
    if op == "consume":
        return consume(r)
    if op in ("join", "poll", "commit", "leave"):
        return group(r)
    return admin(r)


serve(handle)
