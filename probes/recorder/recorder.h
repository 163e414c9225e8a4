// The in-process recorder: a C API without C++ in its ABI, so that any job, and a loadable library, can use it.
//
// Hot path: off, one relaxed load; on, one 64-byte record into the calling thread's own ring file (TRACE.md).
// No lock, no allocation, no system call there. A probe never decides and never fails its host: every call
// is safe before open, after close, from any thread and after a failure (it then counts a loss or does nothing).
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  RS_MODE_FLIGHT = 0, /* overwrite the oldest */
  RS_MODE_STREAM = 1  /* a drainer appends to segment files; drop the newest when full and count it */
};

typedef struct rs_options {
  const char* spool_dir;  // created; must not exist or be empty
  int mode;               // RS_MODE_*
  int threads_expected;   // sizes the rings: clamp(256 MiB / threads, 256 KiB, 4 MiB); 0 = 16
  uint64_t ring_bytes;    // 0 = by the rule above; otherwise a power of two of records
} rs_options;

// 0 = recording. Otherwise an errno value; `rs_last_error` has the sentence. One recorder a process.
int rs_open(const rs_options* options);
// Drains what is left, marks the rings as cleanly closed, unmaps. Threads must have stopped emitting.
void rs_close(void);
const char* rs_last_error(void);

// Binds the calling thread to a rank (-1 = none) and names its ring ("rank3.host"). Optional: a thread that
// emits unbound gets a ring with rank -1. Re-binding an attached thread starts a new ring.
void rs_thread_attach(int rank, const char* name);
void rs_thread_detach(void);
// What the calling thread emits from now on is not recorded, and is no loss (1), or is again (0). For a thread that goes on
// after the program that it stands for has ended.
void rs_thread_mute(int muted);
// Nothing is recorded, by any thread, until rs_resume: for work that is no part of the recorded run. Not nested.
void rs_pause(void);
void rs_resume(void);

// Interned name id, > 0. Takes a lock on first sight of a text; callers cache. "" and NULL give 0.
uint32_t rs_intern(const char* text);

// The next op id for the calling thread: ring id << 40 | sequence. 0 when off.
uint64_t rs_next_op(void);

// Writes one record (n_words <= 5 payload words) or a record and its continuation (n_words <= 10) as one
// published group. `kind` and payloads: tracedb/model/record.h. lane: stream id. A definition (communicators, streams,
// ranks and their ends, meta: is_definition) is also appended to a file: a system call, and no record of a hot path.
void rs_emit(uint16_t kind, uint16_t flags, uint16_t lane, const uint64_t* payload, int n_words);

typedef struct rs_counts {
  uint64_t written, dropped;
  uint64_t names_lost;           // texts that could not be written: records show their number instead
  uint64_t definitions_unsaved;  // lie in their ring alone, which may write over them: the disk is full
} rs_counts;
rs_counts rs_count(void);  // over all rings of this process

// Directly readable switch: relaxed load through rs_enabled().
extern volatile int rs_recording;  // use rs_enabled()
static inline int rs_enabled(void) { return __atomic_load_n(&rs_recording, __ATOMIC_RELAXED); }

#ifdef __cplusplus
}  // extern "C"
#endif
