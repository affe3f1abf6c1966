// Why a run ended early: the first hazard, or a deadlock.
#pragma once
#include "input.h"

namespace gpusim {

class Role;

// Keeps the first failure; the run ends with the event in which it happened.
class FailureLog {
 public:
  FailureRecord record = {};
  bool is_any() const { return record.kind != 0.0; }

  // `who`: the role whose op is being carried out, or none.
  void report(Failure kind, const Role* who, int32_t barrier, int32_t stage, double first, double second,
              double third);
  // The same of a CTA that does not carry out an op.
  void report_cta(Failure kind, int32_t cta, int32_t barrier, double first, double second);
};

}  // namespace gpusim
