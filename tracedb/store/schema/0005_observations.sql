-- Version 3: attention rows computed again from the bytes that the kernels were given, and tokens with their labels.
CREATE TABLE attention_row (  -- one query row of one head over one block of keys, as a kernel made it or recomputed
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  position INTEGER NOT NULL,  -- global row of the query
  head INTEGER NOT NULL,      -- global query head
  kv_owner INTEGER,           -- group rank in CP whose keys these are; NULL = all keys of the call
  sample INTEGER NOT NULL,
  maker INTEGER NOT NULL,     -- 0 the kernel, 1 fp64 arithmetic over its q, K and V and the mask of the layout
  dtype INTEGER NOT NULL,     -- of q, K and V
  method INTEGER NOT NULL,    -- 0 LSE merge, 1 global three steps
  parts INTEGER NOT NULL,     -- blocks of keys that the whole row is made of
  m REAL, lse REAL,           -- maximum and natural log-sum-exp of the scaled scores; -Inf = sees none, NULL = not known
  out REAL,                   -- output row of this block, as its product with a fixed vector; NULL = not known
  out_size REAL,              -- the same with absolute values of all factors; what follows is 0 where a kernel is the maker
  score_noise REAL,           -- largest sum of |q_x k_x| of a visible key, scaled, times sqrt(head size)
  keys INTEGER NOT NULL,      -- visible ones
  block_owner INTEGER NOT NULL,  -- group rank in CP whose bytes the checksum is of (K and V; of three steps q)
  checksum INTEGER NOT NULL,  -- equal on all ranks that were given the block; 0 = none
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE label_run (      -- tokens and labels of consecutive rows of one document on a rank
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  role INTEGER NOT NULL,      -- 0 as the loader made them, 1 as the kernels read them
  token_start INTEGER NOT NULL,  -- row in the global padded sequence
  count INTEGER NOT NULL,     -- rows
  sample INTEGER NOT NULL,
  document INTEGER,           -- NULL = padding
  first_token INTEGER, last_token INTEGER,  -- NULL = behind the end of the sequence
  first_label INTEGER, last_label INTEGER,  -- NULL = not counted
  counted INTEGER NOT NULL,   -- labels that are counted
  pairs INTEGER NOT NULL,     -- of them those with a row behind them in the run
  next INTEGER NOT NULL,      -- of the pairs those whose label is the token behind it
  same INTEGER NOT NULL,      -- counted labels that are the token of their own row
  second INTEGER NOT NULL,    -- of the pairs those whose label is the token two rows on
  tokens_sum INTEGER NOT NULL, labels_sum INTEGER NOT NULL,  -- checksums
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;
-- Version 3: values between the reductions of a step, and what the optimizer did with single elements.
ALTER TABLE tensor_stat ADD COLUMN projection REAL;  -- product with a fixed vector: linear, so it adds up over ranks; NULL = not known

CREATE TABLE step_value (     -- one number of a rank's step, where it was computed
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  quantity INTEGER NOT NULL,  -- enum step_quantity
  axis INTEGER,               -- of the communicator whose reduction the value comes from; NULL = the rank's own
  value REAL,                 -- NULL = NaN
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE update_sample (  -- one element of a parameter in one optimizer step
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  name INTEGER NOT NULL,      -- string.id, as the checkpoint spells it
  part INTEGER,               -- TP rank of the slice; NULL = every TP rank holds it whole
  element INTEGER NOT NULL,   -- in the rank's own part of the tensor
  gradient REAL,              -- reduced, not clipped; in all columns NULL = NaN
  value_before REAL, m_before REAL, v_before REAL,  -- parameter, first and second moment
  value_after REAL, m_after REAL, v_after REAL,
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

-- Of gradients before a reduction only those are replicas that were read together; the analyzer knows which.
DROP VIEW v_replica_mismatch;
CREATE VIEW v_replica_mismatch AS
WITH side AS (
  SELECT step, name, role, part, checksum, group_concat(rank, ',') AS ranks, max(norm) AS norm
  FROM tensor_stat WHERE role IN (0, 1, 7) GROUP BY step, name, role, part, checksum)
SELECT s.step, n.value AS tensor, r.name AS role, s.part, s.ranks, s.norm
FROM side s
LEFT JOIN string n ON n.id = s.name
LEFT JOIN enum_name r ON r.kind = 'tensor_role' AND r.value = s.role
WHERE (SELECT count(*) FROM side o
       WHERE o.step IS s.step AND o.name = s.name AND o.role = s.role AND o.part IS s.part) > 1
ORDER BY s.step, s.name, s.role, s.part, s.ranks;
