// The text of schema/*.sql, embedded at build time.
#pragma once

namespace ringscope {
extern const char* const kSchema_tables;
extern const char* const kSchema_views;
extern const char* const kSchema_indexes;
extern const char* const kSchema_threads;       // version 2
extern const char* const kSchema_observations;  // version 3
}  // namespace ringscope
