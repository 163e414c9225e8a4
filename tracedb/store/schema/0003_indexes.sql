-- Built after loading: rows go in faster without them.
CREATE INDEX IF NOT EXISTS op_by_id ON op (op_id);
CREATE INDEX IF NOT EXISTS op_by_step ON op (step, rank, kind, start_ns, end_ns);
CREATE INDEX IF NOT EXISTS op_by_state ON op (state, rank) WHERE state < 2;
CREATE INDEX IF NOT EXISTS coll_by_seq ON coll (comm, seq, rank);
CREATE INDEX IF NOT EXISTS coll_by_op ON coll (op_id);
CREATE INDEX IF NOT EXISTS p2p_by_seq ON p2p (comm, direction, seq);
CREATE INDEX IF NOT EXISTS p2p_by_op ON p2p (op_id);
CREATE INDEX IF NOT EXISTS sync_by_key ON sync (key);
CREATE INDEX IF NOT EXISTS buffer_by_id ON buffer (buffer);
