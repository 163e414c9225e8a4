#include "runtime/train/step_values.h"

#include <vector>

#include "probes/recorder/emit.h"

namespace ringscope {

void record_step_values(const RankContext& context, const Tensor& values,
                        std::initializer_list<StepQuantity> quantities, const Communicator* over) {
  if (!rs_enabled()) return;
  StepValueRecord record{};
  record.where = context.device->where().pack();
  record.axis = over ? uint16_t(over->axis()) : 0xFFFF;
  const std::vector<StepQuantity> which(quantities);
  context.device->launch(*context.compute, "statistics.step_value", {values}, {}, [values, which, record] {
    StepValueRecord full = record;
    for (size_t i = 0; i < which.size(); ++i) {
      full.quantity = uint16_t(which[i]);
      full.value = values.data<double>()[i];
      emit(RecordKind::kStepValue, full);
    }
  });
}

}  // namespace ringscope
