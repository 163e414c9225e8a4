// A first import of one-threaded ranks writes rows in order; several threads, a later import or another rank may not.
#include <cstdint>
#include <utility>

#include "tracedb/store/derive.h"
#include "tracedb/store/statement.h"

namespace ringscope {

Status restore_order(Store& store, const std::string& table) {
  bool in_order = true;
  {
    Statement s(store.handle(), "SELECT id, rank, issue FROM " + table + " ORDER BY id");
    std::pair<int64_t, int64_t> last{INT64_MIN, INT64_MIN};
    for (int64_t id = 1; in_order && s.step(); ++id) {
      const std::pair<int64_t, int64_t> here{s.integer(1), s.integer(2)};
      in_order = s.integer(0) == id && last <= here;
      last = here;
    }
    if (auto ok = s.status(store.path()); !ok) return ok;
  }
  if (in_order) return {};
  return store.exec("CREATE TEMP TABLE in_order AS SELECT * FROM " + table +
                    " ORDER BY rank, issue, id;"
                    "UPDATE in_order SET id = rowid;"
                    "DELETE FROM " +
                    table + ";INSERT INTO " + table +
                    " SELECT * FROM in_order ORDER BY rowid;"
                    "DROP TABLE in_order;");
}

}  // namespace ringscope
