-- For queries of people; built after loading, since rows go in faster without them. No part of the version: a file may
-- have more or fewer.
CREATE INDEX IF NOT EXISTS op_by_id ON op (op_id);
CREATE INDEX IF NOT EXISTS op_by_state ON op (state, rank) WHERE state < 2;
CREATE INDEX IF NOT EXISTS coll_by_seq ON coll (comm, seq, rank);
CREATE INDEX IF NOT EXISTS coll_by_op ON coll (op_id);
CREATE INDEX IF NOT EXISTS p2p_by_op ON p2p (op_id);
CREATE INDEX IF NOT EXISTS buffer_by_id ON buffer (buffer);
