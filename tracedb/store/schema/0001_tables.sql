-- The trace database, version 1. Times are ns on the job's one time line (CLOCK_REALTIME of the start, carried
-- on by the monotonic clock); NULL = not seen. Enum columns hold the numbers of tracedb/model/enums.h; table
-- enum_name has their words. In tables with (rank, issue) the rows lie in that order: a finding's evidence row
-- is id - 1.
CREATE TABLE meta (
  key TEXT PRIMARY KEY,     -- "outcome", "world_size", "config", ...
  value TEXT NOT NULL
) STRICT;

CREATE TABLE enum_name (
  kind TEXT NOT NULL,       -- "op_kind", "coll_func", "red_op", "dtype", "mem_category", "axis", "op_state", ...
  value INTEGER NOT NULL,
  name TEXT NOT NULL
) STRICT;

CREATE TABLE source (       -- what was imported
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL,
  format TEXT NOT NULL,
  rank INTEGER NOT NULL,    -- -1 = several
  rows INTEGER NOT NULL,    -- records recovered
  lost INTEGER NOT NULL     -- records lost or torn
) STRICT;

CREATE TABLE string (
  id INTEGER PRIMARY KEY,   -- from 1; 0 in other tables = none
  value TEXT NOT NULL
) STRICT;

CREATE TABLE rank (
  rank INTEGER PRIMARY KEY, -- global
  world INTEGER NOT NULL,
  tp INTEGER NOT NULL, cp INTEGER NOT NULL, dp INTEGER NOT NULL, pp INTEGER NOT NULL,  -- coordinates
  tp_size INTEGER NOT NULL, cp_size INTEGER NOT NULL, dp_size INTEGER NOT NULL, pp_size INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  host TEXT NOT NULL
) STRICT;

CREATE TABLE rank_exit (    -- how a rank ended, as its launcher saw it
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  status INTEGER NOT NULL,  -- 0 ran to its end, > 0 exit code, -1 stopped with the run, -2 still blocked
  time_ns INTEGER,
  reason TEXT NOT NULL,
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER  -- last place it named
) STRICT;

CREATE TABLE thread (       -- one per ring file
  ring INTEGER NOT NULL,    -- id in its folder = upper bits of op ids
  process TEXT NOT NULL,    -- token of the process
  rank INTEGER NOT NULL,    -- -1 = none
  pid INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  host TEXT NOT NULL,
  name TEXT NOT NULL,
  mode TEXT NOT NULL,       -- flight | stream
  clock TEXT NOT NULL,      -- tsc | monotonic (no invariant TSC)
  clean INTEGER NOT NULL,   -- 1 = closed in order, 0 = the program was killed or still runs
  start_ns INTEGER NOT NULL,
  PRIMARY KEY (process, ring)
) STRICT;

CREATE TABLE stream (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  stream INTEGER NOT NULL,  -- unique in the job
  name TEXT NOT NULL
) STRICT;

CREATE TABLE clock_sync (   -- samples that tie ticks to ns, per ring
  process TEXT NOT NULL,
  ring INTEGER NOT NULL,
  ticks INTEGER NOT NULL,
  monotonic_ns INTEGER NOT NULL,
  realtime_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE comm (
  comm INTEGER PRIMARY KEY, -- unique in the job
  creation INTEGER NOT NULL,-- earliest position among the communicators of a member
  axis INTEGER NOT NULL,
  name TEXT NOT NULL,
  size INTEGER NOT NULL
) STRICT;

CREATE TABLE comm_rank (
  comm INTEGER NOT NULL,
  group_rank INTEGER NOT NULL,
  rank INTEGER NOT NULL,    -- global
  creation INTEGER,         -- n-th communicator that this rank created, from 0
  PRIMARY KEY (comm, group_rank)
) STRICT;

CREATE TABLE buffer (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  buffer INTEGER NOT NULL,  -- unique in the job
  base INTEGER NOT NULL,    -- address
  bytes INTEGER NOT NULL,
  category INTEGER NOT NULL,
  name INTEGER NOT NULL,    -- string
  alloc_ns INTEGER, free_ns INTEGER,
  free_stream INTEGER,      -- whose order the free follows; NULL = every stream's that used it
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE op (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  issue INTEGER NOT NULL,   -- order on the rank's host thread, shared with sync
  op_id INTEGER NOT NULL,   -- ring << 40 | sequence
  stream INTEGER NOT NULL,
  name INTEGER NOT NULL,    -- string
  kind INTEGER NOT NULL,
  state INTEGER NOT NULL,   -- scheduled | started | completed
  group_op INTEGER NOT NULL,-- op_id of the first operation of the group call, 0 = none
  enqueue_ns INTEGER, start_ns INTEGER, end_ns INTEGER,
  bytes_sent INTEGER NOT NULL,  -- copied towards peers, counted where they were copied
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE coll (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  op_id INTEGER NOT NULL,
  comm INTEGER NOT NULL,
  seq INTEGER NOT NULL,     -- position among this rank's collectives on comm, from 0
  func INTEGER NOT NULL,
  count INTEGER NOT NULL,   -- elements as the call states them
  dtype INTEGER NOT NULL,
  redop INTEGER NOT NULL,
  root INTEGER NOT NULL     -- group rank, -1 = none
) STRICT;

CREATE TABLE p2p (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  op_id INTEGER NOT NULL,
  comm INTEGER NOT NULL,
  peer INTEGER NOT NULL,    -- group rank
  direction INTEGER NOT NULL,
  seq INTEGER NOT NULL,     -- among (comm, source, destination), from 0
  bytes INTEGER NOT NULL,
  count INTEGER NOT NULL,
  dtype INTEGER NOT NULL,
  match_op INTEGER          -- op_id of the other side
) STRICT;

CREATE TABLE access (       -- byte ranges that operations read and write
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  op_id INTEGER NOT NULL,
  buffer INTEGER NOT NULL,
  begin_byte INTEGER NOT NULL, end_byte INTEGER NOT NULL,  -- half open
  mode INTEGER NOT NULL
) STRICT;

CREATE TABLE sync (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  kind INTEGER NOT NULL,    -- record | wait | host_sync
  stream INTEGER NOT NULL,  -- recorded on, or waiting
  from_stream INTEGER,      -- a wait: the stream of the record it bound
  event INTEGER NOT NULL,
  key INTEGER NOT NULL,     -- the record call; on a wait 0 = never recorded, a no-op
  name INTEGER NOT NULL,    -- string
  time_ns INTEGER,
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE ring_plan (    -- attention steps that a rank intended and ran, one row per ring pass
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  comm INTEGER NOT NULL,
  expected_steps INTEGER NOT NULL,
  run_steps INTEGER NOT NULL,
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE ring_step (    -- derived from op, p2p and ring_plan
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  step INTEGER, microbatch INTEGER, layer INTEGER, pass INTEGER,
  ring_step INTEGER NOT NULL,
  expected_steps INTEGER,   -- of the whole pass
  attention_ns INTEGER,     -- kernels of this ring step, without the recording's own (statistics.*)
  transfer_ns INTEGER,      -- from the first start to the last end of its transfers
  exposed_ns INTEGER,       -- part of the transfer during which no kernel of this rank ran
  blocking_ns INTEGER       -- from its last kernel to the first of the next ring step
) STRICT;

CREATE TABLE softmax_row (  -- one row per part of a logged query row, and one for the merged result
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  position INTEGER NOT NULL,  -- global row of the query
  head INTEGER NOT NULL,
  kv_owner INTEGER,         -- group rank in CP whose keys the part covers; NULL = the merged result
  sample INTEGER NOT NULL,
  method INTEGER NOT NULL,  -- 0 LSE merge, 1 global three steps
  parts INTEGER NOT NULL,
  m_own REAL, lse_own REAL, -- over the part's own keys; -Inf = sees none
  m_used REAL, sum_used REAL,  -- what the normalisation really used; NULL = the method uses none
  lse_result REAL,          -- of the merged row
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE softmax_stat (  -- all rows and heads of one attention call on a rank, in one line
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  rows INTEGER NOT NULL,    -- query rows x heads
  empty INTEGER NOT NULL,   -- of them see no key: LSE = -Inf
  bad INTEGER NOT NULL,     -- of them have NaN or +Inf as LSE
  method INTEGER NOT NULL,  -- 0 LSE merge, 1 global three steps
  parts INTEGER NOT NULL,   -- shards of keys that each row was put together from
  lse_min REAL, lse_max REAL, lse_mean REAL,  -- natural, over the finite ones; NULL = there are none
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE tensor_stat (  -- the parameters of a rank after an optimizer step
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  name INTEGER NOT NULL,    -- string.id, as the checkpoint spells it
  role INTEGER NOT NULL,    -- gradient (reduced, as the optimizer reads it) | parameter (updated)
  part INTEGER,             -- TP rank of the slice; NULL = every TP rank holds it whole
  count INTEGER NOT NULL,   -- elements
  checksum INTEGER NOT NULL,  -- ranks with equal step, name, role and part must agree: v_replica_mismatch
  norm REAL,                -- Euclidean
  bad INTEGER NOT NULL,     -- elements that are NaN or infinite
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE position_run (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  role INTEGER NOT NULL,    -- data (made) | rope, embedding, mask (applied)
  token_start INTEGER NOT NULL,  -- row in the global padded sequence
  count INTEGER NOT NULL,
  pos_start INTEGER NOT NULL,
  stride INTEGER NOT NULL,  -- pos(i) = pos_start + i * stride
  document INTEGER,         -- NULL = padding
  sample INTEGER NOT NULL,
  rope_base REAL NOT NULL,  -- 0 = not RoPE
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE memory_sample (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  category INTEGER NOT NULL,
  bytes INTEGER NOT NULL,       -- live
  peak_bytes INTEGER NOT NULL,  -- since the start
  time_ns INTEGER,
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE train_step (
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL, issue INTEGER NOT NULL,
  loss_sum REAL,            -- of this rank's counted tokens
  valid_tokens INTEGER NOT NULL,
  divisor REAL, loss REAL,
  tokens INTEGER NOT NULL,  -- of the whole step
  seconds REAL, grad_norm REAL, lr REAL,
  peak_bytes INTEGER NOT NULL,
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER
) STRICT;

CREATE TABLE probe (        -- who recorded, and at what cost
  process TEXT NOT NULL,
  name TEXT NOT NULL,
  attached INTEGER NOT NULL,
  error TEXT,
  events INTEGER NOT NULL,
  dropped INTEGER NOT NULL,
  ns_per_event REAL,        -- NULL = not measured in this run
  PRIMARY KEY (process, name)
) STRICT;

CREATE TABLE import_stats (
  source TEXT NOT NULL,     -- path
  name TEXT NOT NULL,
  severity TEXT NOT NULL,   -- info | data_loss | error
  count INTEGER NOT NULL,
  help TEXT NOT NULL,
  PRIMARY KEY (source, name)
) STRICT;

CREATE TABLE lost (         -- a row bars findings that rest on something being absent on this rank
  process TEXT NOT NULL,
  ring TEXT NOT NULL,       -- thread name or file
  ring_id INTEGER NOT NULL, -- 0 = threads that got no ring
  rank INTEGER NOT NULL,    -- -1 = any
  records INTEGER NOT NULL, -- groups overwritten, dropped or refused
  torn INTEGER NOT NULL,    -- groups of which a part is missing
  from_ns INTEGER, to_ns INTEGER,  -- first and last drop, NULL = unknown
  PRIMARY KEY (process, ring_id)
) STRICT;

CREATE TABLE drain_state (  -- commits with the rows of the ring: importing twice adds nothing
  process TEXT NOT NULL,
  ring INTEGER NOT NULL,
  next_seq INTEGER NOT NULL,
  PRIMARY KEY (process, ring)
) STRICT;

CREATE TABLE finding (
  id INTEGER PRIMARY KEY,   -- position in the report, from 0
  finding TEXT NOT NULL,    -- "hang.missing_rank"
  root INTEGER NOT NULL,
  caused_by INTEGER,        -- finding.id
  severity INTEGER NOT NULL,-- 0 note, 1 warning, 2 error
  confidence REAL NOT NULL,
  ranks TEXT NOT NULL,      -- "0-2,5"
  waiting TEXT NOT NULL,
  group_name TEXT, group_ranks TEXT,
  seq INTEGER, op TEXT,
  step INTEGER, layer INTEGER, microbatch INTEGER, ring_step INTEGER, pass INTEGER,
  sentence TEXT NOT NULL,
  fix TEXT NOT NULL,
  would_raise_confidence TEXT NOT NULL,
  first_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE evidence (
  finding INTEGER NOT NULL, -- finding.id
  n INTEGER NOT NULL,
  source INTEGER NOT NULL,  -- index into the report's sources
  table_name TEXT NOT NULL,
  row INTEGER NOT NULL,     -- id - 1 in that table; -1 = none
  text TEXT NOT NULL
) STRICT;
