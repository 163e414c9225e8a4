// A minimal NVTX tool: counts the ranges and marks of domain "ringscope" and decodes their payloads only by
// the schema that the program registered, as a foreign tool has to.
#include "tests/probes/nvtx/nvtx_collector.h"

#include <nvtx3/nvToolsExtPayload.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

constexpr uint32_t kPayloadSchemaRegister = 0;  // callback ids of the payload extension
constexpr uint16_t kPayloadModule = 2;
constexpr uint64_t kFirstSchemaId = uint64_t{1} << 40;

struct Field {
  uint64_t type, offset;
};
struct Collector {
  std::mutex mutex;
  NvtxCollectorSeen seen{};
  std::map<std::string, Field> place;      // by entry name
  std::map<std::string, long long> names;  // pushes
  uint64_t place_schema = 0;
  ~Collector() {
    const char* path = std::getenv("NVTX_COLLECTOR_OUT");
    if (path == nullptr) return;
    if (FILE* out = std::fopen(path, "w")) {
      std::fprintf(
          out, "{\"pushes\": %lld, \"pops\": %lld, \"marks\": %lld, \"payloads\": %lld, \"bytes\": %llu, \"names\": {",
          (long long)seen.pushes, (long long)seen.pops, (long long)seen.marks, (long long)seen.payloads,
          (unsigned long long)seen.bytes);
      const char* comma = "";
      for (const auto& [name, count] : names) {
        std::fprintf(out, "%s\"%s\": %lld", comma, name.c_str(), count);
        comma = ", ";
      }
      std::fprintf(out, "}}\n");
      std::fclose(out);
    }
  }
};
Collector& collector() {
  static Collector it;
  return it;
}
char our_domain;  // its address is the handle

template <class T>
T read_field(const char* data, size_t size, const std::string& name, uint64_t type) {
  const auto& place = collector().place;
  const auto field = place.find(name);
  T value{};
  if (field == place.end() || field->second.type != type || field->second.offset + sizeof(T) > size) return T(-1);
  std::memcpy(&value, data + field->second.offset, sizeof(T));
  return value;
}

void note_event(const nvtxEventAttributes_t* event) {
  NvtxCollectorSeen& seen = collector().seen;
  std::snprintf(seen.last_name, sizeof(seen.last_name), "%s", event->message.ascii);
  if (event->payloadType != NVTX_PAYLOAD_TYPE_EXT || event->reserved0 != 1) return;
  const auto* payload = reinterpret_cast<const nvtxPayloadData_t*>(uintptr_t(event->payload.ullValue));
  if (payload->schemaId != collector().place_schema) return;
  const auto* data = static_cast<const char*>(payload->payload);
  seen.payloads += 1;
  seen.bytes += read_field<uint64_t>(data, payload->size, "bytes", NVTX_PAYLOAD_ENTRY_TYPE_UINT64);
  seen.last_step = read_field<int32_t>(data, payload->size, "step", NVTX_PAYLOAD_ENTRY_TYPE_INT32);
  seen.last_layer = read_field<int32_t>(data, payload->size, "layer", NVTX_PAYLOAD_ENTRY_TYPE_INT32);
  seen.last_ring_step = read_field<int32_t>(data, payload->size, "ring_step", NVTX_PAYLOAD_ENTRY_TYPE_INT32);
  seen.last_pass = read_field<int32_t>(data, payload->size, "pass", NVTX_PAYLOAD_ENTRY_TYPE_INT32);
}

bool ours(nvtxDomainHandle_t domain) { return reinterpret_cast<char*>(domain) == &our_domain; }

nvtxDomainHandle_t NVTX_API domain_create(const char* name) {
  static char other_domain;
  return reinterpret_cast<nvtxDomainHandle_t>(std::strcmp(name, "ringscope") == 0 ? &our_domain : &other_domain);
}
int NVTX_API domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  if (!ours(domain)) return 0;
  std::lock_guard lock(collector().mutex);
  collector().seen.pushes += 1;
  ++collector().names[event->message.ascii];
  note_event(event);
  return 0;
}
int NVTX_API domain_pop(nvtxDomainHandle_t domain) {
  if (!ours(domain)) return 0;
  std::lock_guard lock(collector().mutex);
  collector().seen.pops += 1;
  return 0;
}
void NVTX_API domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  if (!ours(domain)) return;
  std::lock_guard lock(collector().mutex);
  collector().seen.marks += 1;
  note_event(event);
}
uint64_t NVTX_API schema_register(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* schema) {
  std::lock_guard lock(collector().mutex);
  if (!ours(domain)) return kFirstSchemaId + 1000;
  collector().seen.schemas += 1;
  collector().place_schema = kFirstSchemaId + uint64_t(collector().seen.schemas);
  for (size_t i = 0; i < schema->numEntries; ++i) {
    const nvtxPayloadSchemaEntry_t& entry = schema->entries[i];
    collector().place[entry.name] = Field{entry.type, entry.offset};
  }
  return collector().place_schema;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const NvtxCollectorSeen* nvtx_collector_seen() { return &collector().seen; }

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  collector();  // constructed before, so destroyed after, whatever the program registers for its exit
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(domain_create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(domain_push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(domain_pop);
  *table[NVTX_CBID_CORE2_DomainMarkEx] = reinterpret_cast<NvtxFunctionPointer>(domain_mark);
  return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != kPayloadModule) return 0;
  module->segments[0].functionSlots[kPayloadSchemaRegister] = reinterpret_cast<intptr_t>(schema_register);
  return 1;
}

}  // extern "C"
