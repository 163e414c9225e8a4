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
