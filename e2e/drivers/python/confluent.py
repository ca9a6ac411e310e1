"""Drives confluent-kafka (librdkafka) for the scenarios of e2e."""

import time

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from lines import b64, serve, unb64

member = None


def record(m):
    return {
        "partition": m.partition(), "offset": m.offset(), "timestamp": m.timestamp()[1], "key": b64(m.key()), "value": b64(m.value()),
        "headers": [{"key": k, "value": b64(v)} for k, v in m.headers() or []],
    }


def take(consumer, count, timeout_ms):
    records, until = [], time.monotonic() + timeout_ms / 1000
    while len(records) < count and time.monotonic() < until:
        m = consumer.poll(min(0.2, max(0, until - time.monotonic())))
        if m is None:
            continue
        if m.error():
            raise KafkaException(m.error())
        records.append(record(m))
    return records


def produce(r):
    p = Producer({
        "bootstrap.servers": r["bootstrap"], "compression.type": r.get("codec") or "none", "acks": r.get("acks") or "all",
        "enable.idempotence": r.get("idempotent", False), "linger.ms": 5, "message.max.bytes": 64 << 20, "message.timeout.ms": 30000,
    })
    done = []
    for x in r["records"]:
        p.produce(r["topic"], partition=x["partition"], key=unb64(x["key"]), value=unb64(x["value"]), timestamp=x["timestamp"] or 0,
                  headers=[(h["key"], unb64(h["value"])) for h in x.get("headers") or []] or None, on_delivery=lambda err, m: done.append((err, m)))
        p.poll(0)
    if p.flush(60):
        raise TimeoutError("records not delivered in 60 s")
    for err, _ in done:
        if err:
            raise KafkaException(err)
    return {"records": [{"partition": m.partition(), "offset": m.offset()} for _, m in done]}


def consume(r):
    c = Consumer({"bootstrap.servers": r["bootstrap"], "group.id": "e2e-no-group", "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.message.max.bytes": 64 << 20})
    try:
        tp = TopicPartition(r["topic"], r["partition"], confluent_kafka.OFFSET_BEGINNING)
        if r["from"] == "offset":
            tp.offset = r["value"]
        elif r["from"] == "time":
            tp = c.offsets_for_times([TopicPartition(r["topic"], r["partition"], r["value"])], timeout=30)[0]
        c.assign([tp])
        return {"records": take(c, r["count"], r["timeoutMs"])}
    finally:
        c.close()


def group(r):
    global member
    op = r["op"]
    if op == "join":
        member = Consumer({"bootstrap.servers": r["bootstrap"], "group.id": r["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
                           "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})
        member.subscribe(r["topics"])
    elif op == "poll":
        records = take(member, r["count"], r["timeoutMs"])
        return {"records": records, "assignment": [{"topic": tp.topic, "partition": tp.partition} for tp in member.assignment()]}
    elif op == "commit":
        member.commit(asynchronous=False)
    else:
        member.close()
    return {}


def admin(r):
    a, op = AdminClient({"bootstrap.servers": r["bootstrap"]}), r["op"]
    if op == "create":
        for f in a.create_topics([NewTopic(r["topic"], r["partitions"], 1, config=r.get("configs") or {})]).values():
            f.result(30)
        return {}
    if op == "delete-records":
        for f in a.delete_records([TopicPartition(r["topic"], r["partition"], r["value"])]).values():
            f.result(30)
        return {}
    if op == "configs":
        (f,) = a.describe_configs([ConfigResource(ResourceType.TOPIC, r["topic"])]).values()
        return {"configs": {k: v.value or "" for k, v in f.result(30).items()}}
    if op == "alter-configs":
        entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in r["configs"].items()]
        for f in a.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, r["topic"], incremental_configs=entries)]).values():
            f.result(30)
        return {}
    if op == "groups":
        return {"groups": [g.group_id for g in a.list_consumer_groups().result(30).valid]}
    if op == "describe-group":
        (f,) = a.describe_consumer_groups([r["group"]]).values()
        d = f.result(30)
        return {"state": d.state.name.title().replace("_", ""), "members": len(d.members)}
    raise ValueError(op)


def handle(r):
    op = r["op"]
    if op == "hello":
        return {"client": "confluent-kafka", "version": f"{confluent_kafka.__version__} librdkafka {confluent_kafka.libversion()[0]}"}
    if op == "produce":
        return produce(r)
    if op == "consume":
        return consume(r)
    if op in ("join", "poll", "commit", "leave"):
        return group(r)
    return admin(r)


serve(handle)
