#include "probes/nvtx/emit.h"

#include <nvtx3/nvToolsExtPayload.h>

#include <cstddef>

namespace ringscope::nvtx {
namespace {

struct Place {
  int32_t step, layer, microbatch, ring_step, pass;
  int32_t reserved;  // keeps `bytes` aligned without a hidden gap
  uint64_t bytes;
};

// What the process agreed with the tool, once.
struct Session {
  nvtxDomainHandle_t domain = nullptr;  // null: nobody listens
  uint64_t place_schema = 0;
};

uint64_t register_place_schema(nvtxDomainHandle_t domain) {
  const nvtxPayloadSchemaEntry_t entries[] = {
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "step", nullptr, 0, offsetof(Place, step), nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "layer", nullptr, 0, offsetof(Place, layer), nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "microbatch", nullptr, 0, offsetof(Place, microbatch), nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "ring_step", nullptr, 0, offsetof(Place, ring_step), nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "pass", nullptr, 0, offsetof(Place, pass), nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "bytes", nullptr, 0, offsetof(Place, bytes), nullptr, nullptr},
  };
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  schema.name = "ringscope.place";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = sizeof(entries) / sizeof(entries[0]);
  schema.payloadStaticSize = sizeof(Place);
  return nvtxPayloadSchemaRegister(domain, &schema);
}

Session open_session() {
  Session session;
  session.domain = nvtxDomainCreateA("ringscope");
  if (session.domain != nullptr) session.place_schema = register_place_schema(session.domain);
  return session;
}

const Session& session() {
  static const Session opened = open_session();
  return opened;
}

// Builds the event on the stack; the tool copies what it keeps before `use` returns.
template <class Use>
void with_event(const Session& to, const char* name, uint64_t where, uint64_t bytes, Use use) {
  const Where at = Where::unpack(where);
  const int32_t pass = at.pass == Pass::kNone ? -1 : int32_t(at.pass);
  const Place place{at.step, at.layer, at.microbatch, at.ring_step, pass, 0, bytes};
  const nvtxPayloadData_t payload{to.place_schema, sizeof(place), &place};

  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  // A collector without the payload extension gives no schema id: it still gets the bytes, as a plain number.
  if (to.place_schema != 0) {
    event.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    event.reserved0 = 1;  // the number of nvtxPayloadData_t
    event.payload.ullValue = reinterpret_cast<uintptr_t>(&payload);
  } else {
    event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    event.payload.ullValue = bytes;
  }
  use(&event);
}

}  // namespace

bool available() { return session().domain != nullptr; }

void range_push(const char* name, uint64_t where, uint64_t bytes) {
  const Session& to = session();
  if (to.domain == nullptr) return;
  with_event(to, name, where, bytes, [&](auto* event) { nvtxDomainRangePushEx(to.domain, event); });
}

void range_pop() {
  const Session& to = session();
  if (to.domain != nullptr) nvtxDomainRangePop(to.domain);
}

void mark(const char* name, uint64_t where, uint64_t bytes) {
  const Session& to = session();
  if (to.domain == nullptr) return;
  with_event(to, name, where, bytes, [&](auto* event) { nvtxDomainMarkEx(to.domain, event); });
}

}  // namespace ringscope::nvtx
