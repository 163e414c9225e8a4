-- Version 2: several processes and several host threads a rank in one job. From here on `issue` is the recorder's
-- clock (ticks) at the call, made unique within its thread; version 1 had ring of the rank << 40 | sequence there.
ALTER TABLE op ADD COLUMN thread INTEGER NOT NULL DEFAULT 0;    -- host thread of the rank, from 0 in order of appearance
ALTER TABLE sync ADD COLUMN thread INTEGER NOT NULL DEFAULT 0;  -- host thread of the rank

CREATE TABLE process (      -- whose rings were imported
  process TEXT PRIMARY KEY, -- token
  number INTEGER NOT NULL   -- from 0 in order of import; upper 16 bits of stream, buffer, event and key in other tables
) STRICT;

CREATE TABLE comm_of (      -- which communicator of the job a process meant by its own number
  process TEXT NOT NULL,    -- token
  local INTEGER NOT NULL,   -- the process's number
  comm INTEGER NOT NULL,    -- comm.comm
  PRIMARY KEY (process, local)
) STRICT;
