#include "subjects.h"

#include "launch_record.h"
#include "tensors/readable.h"

namespace aoti_debug {
namespace {

bool is_wanted(const Config& config, Phase phase, uint8_t role) {
  switch (config.phase) {
    case PhaseChoice::kBefore:
      return phase == PHASE_BEFORE;
    case PhaseChoice::kAfter:
      return phase == PHASE_AFTER;
    case PhaseChoice::kBoth:
      return true;
    case PhaseChoice::kByRole:
      break;
  }
  if (config.level == LEVEL_SAVE) return true;
  if (role == AOTI_DEBUG_ROLE_IN) return phase == PHASE_BEFORE;
  if (role == AOTI_DEBUG_ROLE_OUT) return phase == PHASE_AFTER;
  return true;
}

}  // namespace

std::vector<Subject> subjects(const LaunchState& launch, const AotiDebugValue* values, Phase phase, bool after) {
  const AotiDebugSite& site = *launch.site;
  std::vector<Subject> found;
  for (uint32_t i = 0; i < site.n_slots; ++i) {
    const AotiDebugSlot& slot = site.slots[i];
    if (!is_tensor_form(slot.form) || !is_wanted(launch.call->run->config, phase, slot.role)) continue;
    if (is_repeated(site, i)) continue;
    Subject subject{static_cast<uint16_t>(i), {}};
    if (read_slot(slot, values, after, &subject.meta).tag == VALUE_TENSOR) found.push_back(subject);
  }
  return found;
}

}  // namespace aoti_debug
