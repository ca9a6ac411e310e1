// Drives kafkajs for the scenarios of e2e. One JSON request a line in, one answer a line out (e2e/protocol).
'use strict';
const readline = require('node:readline');
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs');

const b64 = (x) => (x == null ? null : Buffer.from(x).toString('base64'));
const unb64 = (x) => (x == null ? null : Buffer.from(x, 'base64'));
const unsupported = (what) => { throw Object.assign(new Error(what), { unsupported: what }); };
const kafka = (r) => new Kafka({ clientId: 'e2e', brokers: [r.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8 } });
let member = null;

function headersOf(list) {
  const out = {};
  for (const h of list || []) {
    const v = unb64(h.value);
    out[h.key] = h.key in out ? [].concat(out[h.key], v) : v;
  }
  return out;
}

function record(partition, m) {
  const headers = [];
  for (const [k, v] of Object.entries(m.headers || {})) for (const x of [].concat(v)) headers.push({ key: k, value: b64(x) });
  return { partition, offset: Number(m.offset), timestamp: Number(m.timestamp), key: b64(m.key), value: b64(m.value), headers };
}

async function produce(r) {
  const codec = { '': 0, none: 0, gzip: 1 }[r.codec || 'none'];
  if (codec === undefined) unsupported(`codec ${r.codec} needs a package of its own`);
  const p = kafka(r).producer({ idempotent: !!r.idempotent, createPartitioner: () => ({ message }) => message.partition, maxInFlightRequests: r.idempotent ? 1 : null });
  await p.connect();
  try {
    const messages = r.records.map((x) => ({ partition: x.partition, key: unb64(x.key), value: unb64(x.value), timestamp: x.timestamp ? String(x.timestamp) : undefined, headers: headersOf(x.headers) }));
    await p.send({ topic: r.topic, acks: { 0: 0, 1: 1 }[r.acks] ?? -1, compression: codec === 1 ? CompressionTypes.GZIP : CompressionTypes.None, messages });
    return {};
  } finally { await p.disconnect(); }
}

async function consume(r) {
  const k = kafka(r), records = [];
  let offset = '-2';
  if (r.from === 'offset') offset = String(r.value);
  if (r.from === 'time') {
    const a = k.admin(); await a.connect();
    offset = (await a.fetchTopicOffsetsByTimestamp(r.topic, r.value)).find((x) => x.partition === r.partition).offset;
    await a.disconnect();
  }
  const c = k.consumer({ groupId: `e2e-read-${process.pid}-${Date.now()}`, sessionTimeout: 10000, maxBytesPerPartition: 64 << 20 });
  await c.connect();
  try {
    await c.subscribe({ topic: r.topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      setTimeout(resolve, r.timeoutMs);
      c.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
        if (partition !== r.partition || records.length >= r.count) return;
        if (r.from !== 'start' && Number(message.offset) < Number(offset)) return;
        records.push(record(partition, message));
        if (records.length >= r.count) resolve();
      } }).catch(reject);
      if (r.from !== 'start') c.seek({ topic: r.topic, partition: r.partition, offset });
    });
  } finally { await c.disconnect(); }
  return { records };
}

async function group(r) {
  if (r.op === 'join') {
    const c = kafka(r).consumer({ groupId: r.group, sessionTimeout: 10000, heartbeatInterval: 500, rebalanceTimeout: 10000 });
    member = { c, queue: [], wake: null, held: [], next: new Map() };
    c.on(c.events.GROUP_JOIN, (e) => { member.held = Object.entries(e.payload.memberAssignment).flatMap(([topic, ps]) => ps.map((partition) => ({ topic, partition }))); });
    c.on(c.events.REBALANCING, () => { member.held = []; });
    await c.connect();
    await c.subscribe({ topics: r.topics, fromBeginning: true });
    await c.run({ autoCommit: false, partitionsConsumedConcurrently: 4, eachMessage: async ({ topic, partition, message }) => {
      await new Promise((taken) => { member.queue.push({ topic, rec: record(partition, message), taken }); if (member.wake) member.wake(); });
    } });
    return {};
  }
  if (r.op === 'poll') {
    const records = [], until = Date.now() + r.timeoutMs;
    while (records.length < r.count && Date.now() < until) {
      const x = member.queue.shift();
      if (!x) { await new Promise((w) => { member.wake = w; setTimeout(w, Math.min(200, Math.max(1, until - Date.now()))); }); continue; }
      records.push(x.rec);
      member.next.set(`${x.topic} ${x.rec.partition}`, { topic: x.topic, partition: x.rec.partition, offset: String(x.rec.offset + 1) });
      x.taken();
    }
    return { records, assignment: member.held };
  }
  if (r.op === 'commit') { await member.c.commitOffsets([...member.next.values()]); member.next.clear(); return {}; }
  for (const x of member.queue) x.taken();
  await member.c.disconnect();
  return {};
}

async function admin(r) {
  const a = kafka(r).admin();
  await a.connect();
  try {
    switch (r.op) {
      case 'create':
        await a.createTopics({ topics: [{ topic: r.topic, numPartitions: r.partitions, replicationFactor: 1, configEntries: Object.entries(r.configs || {}).map(([name, value]) => ({ name, value })) }] });
        return {};
      case 'delete-records':
        await a.fetchTopicOffsets(r.topic); // the library deletes only from topics whose metadata it has
        await a.deleteTopicRecords({ topic: r.topic, partitions: [{ partition: r.partition, offset: String(r.value) }] });
        return {};
      case 'configs': {
        const d = await a.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: r.topic }], includeSynonyms: false });
        return { configs: Object.fromEntries(d.resources[0].configEntries.map((e) => [e.configName, e.configValue || ''])) };
      }
      case 'alter-configs':
        await a.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: r.topic, configEntries: Object.entries(r.configs).map(([name, value]) => ({ name, value })) }] });
        return {};
      case 'groups':
        return { groups: (await a.listGroups()).groups.map((g) => g.groupId) };
      case 'describe-group': {
        const g = (await a.describeGroups([r.group])).groups[0];
        return { state: g.state, members: g.members.length };
      }
    }
    return unsupported(r.op);
  } finally { await a.disconnect(); }
}

async function handle(r) {
  switch (r.op) {
    case 'hello': return { client: 'kafkajs', version: require('kafkajs/package.json').version };
    case 'produce': return produce(r);
    case 'consume': return consume(r);
    case 'join': case 'poll': case 'commit': case 'leave': return group(r);
    default: return admin(r);
  }
}

let last = Promise.resolve();
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  last = last.then(async () => {
    let answer;
    try { answer = await handle(JSON.parse(line)); } catch (e) { answer = e.unsupported ? { unsupported: e.unsupported } : { error: String(e.message || e) }; }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  });
}).on('close', () => last.then(() => process.exit(0)));
