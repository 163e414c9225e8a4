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
