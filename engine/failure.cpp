// Why a run ended early: the first hazard, or a deadlock.
#include "failure.h"

#include "machine.h"

namespace gpusim {

void FailureLog::report(Failure kind, const Role* who, int32_t barrier, int32_t stage, double first,
                        double second, double third) {
  if (is_any()) return;
  record.kind = double(kind);
  record.cycle = agenda.cycle;
  record.cta = who == nullptr ? -1.0 : who->cta->idx;
  record.role = who == nullptr ? -1.0 : who->idx;
  record.op = who == nullptr ? -1.0 : who->op_idx();
  record.barrier = barrier;
  record.stage = stage;
  record.first = first;
  record.second = second;
  record.third = third;
}

void FailureLog::report_cta(Failure kind, int32_t cta, int32_t barrier, double first, double second) {
  if (is_any()) return;
  report(kind, nullptr, barrier, -1, first, second, 0.0);
  record.cta = cta;
}

}  // namespace gpusim
