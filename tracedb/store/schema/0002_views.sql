-- Views for people: ringscope query DB "SELECT * FROM v_..."

-- One row per ring step with everything that happened in it.
CREATE VIEW v_ring_timeline AS
SELECT r.rank, r.step, r.microbatch, r.layer,
       CASE r.pass WHEN 0 THEN 'forward' WHEN 1 THEN 'backward' WHEN 2 THEN 'optimizer' END AS pass,
       r.ring_step, r.expected_steps, r.attention_ns, r.transfer_ns, r.exposed_ns, r.blocking_ns
FROM ring_step r
ORDER BY r.step, r.microbatch, r.layer, r.pass, r.rank, r.ring_step;

-- What was queued or running and never ended: the evidence of a hang.
CREATE VIEW v_pending_ops AS
SELECT o.rank, s.name AS stream, n.value AS op, k.name AS kind, t.name AS state, m.name AS comm,
       coalesce(c.seq, p.seq) AS seq, p.peer, o.step, o.layer, o.microbatch, o.ring_step,
       o.enqueue_ns, o.start_ns, o.op_id
FROM op o
LEFT JOIN string n ON n.id = o.name
LEFT JOIN stream s ON s.stream = o.stream AND s.rank = o.rank
LEFT JOIN coll c ON c.op_id = o.op_id
LEFT JOIN p2p p ON p.op_id = o.op_id
LEFT JOIN comm m ON m.comm = coalesce(c.comm, p.comm)
LEFT JOIN enum_name k ON k.kind = 'op_kind' AND k.value = o.kind
LEFT JOIN enum_name t ON t.kind = 'op_state' AND t.value = o.state
WHERE o.state < 2
ORDER BY o.rank, o.issue;

-- What each member of a communicator called at each position.
CREATE VIEW v_collective_order AS
SELECT m.name AS comm, c.seq, c.rank, f.name AS func, c.count, d.name AS dtype, r.name AS redop, c.root,
       t.name AS state, o.step, o.layer, o.microbatch, o.enqueue_ns, o.start_ns, o.end_ns
FROM coll c
JOIN op o ON o.op_id = c.op_id
LEFT JOIN comm m ON m.comm = c.comm
LEFT JOIN enum_name f ON f.kind = 'coll_func' AND f.value = c.func
LEFT JOIN enum_name d ON d.kind = 'dtype' AND d.value = c.dtype
LEFT JOIN enum_name r ON r.kind = 'red_op' AND r.value = c.redop
LEFT JOIN enum_name t ON t.kind = 'op_state' AND t.value = o.state
ORDER BY c.comm, c.seq, c.rank;

-- Communication that attention did not hide, per rank and step.
CREATE VIEW v_exposed_comm AS
SELECT rank, step, sum(transfer_ns) AS transfer_ns, sum(exposed_ns) AS exposed_ns,
       round(100.0 * sum(exposed_ns) / nullif(sum(transfer_ns), 0), 1) AS exposed_percent
FROM ring_step
GROUP BY rank, step
ORDER BY step, rank;

-- Memory by rank and category.
CREATE VIEW v_memory AS
SELECT s.rank, c.name AS category, max(s.peak_bytes) AS peak_bytes, count(*) AS samples
FROM memory_sample s
LEFT JOIN enum_name c ON c.kind = 'mem_category' AND c.value = s.category
GROUP BY s.rank, s.category
ORDER BY s.rank, s.category;

-- Replicas of a parameter that are not the same bits on all ranks that hold it, with the ranks on each side. Empty
-- in a healthy run: gradients are reduced before the optimizer reads them.
CREATE VIEW v_replica_mismatch AS
WITH side AS (
  SELECT step, name, role, part, checksum, group_concat(rank, ',') AS ranks, max(norm) AS norm
  FROM tensor_stat GROUP BY step, name, role, part, checksum)
SELECT s.step, n.value AS tensor, r.name AS role, s.part, s.ranks, s.norm
FROM side s
LEFT JOIN string n ON n.id = s.name
LEFT JOIN enum_name r ON r.kind = 'tensor_role' AND r.value = s.role
WHERE (SELECT count(*) FROM side o
       WHERE o.step IS s.step AND o.name = s.name AND o.role = s.role AND o.part IS s.part) > 1
ORDER BY s.step, s.name, s.role, s.part, s.ranks;
