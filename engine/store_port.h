// An SM's stores on their way to L2, one after the other, and requests of copies that stand behind them.
#pragma once
#include "request.h"

namespace gpusim {

// Models:
// * stores one after the other: SMs share what L2 takes, not transfers;
// * a buffer of stores that have left the SM and wait for their turn;
// * requests of copies that stand behind stores.
// Ignores:
// * late acknowledgements of stores.
// Source: kernels/store_drift, kernels/loads_beside_stores. Positions are bytes since the beginning. A store
// has left the SM when all of it has passed, except for what the buffer holds.
class StorePort : public Completion, public Action {
 public:
  bool is_busy = false;  // whether stores are on their way

  StorePort(SharedPipe* pipe, uint32_t sm) : pipe_(pipe), sm_(sm) {}

  // Moves `num_bytes`, whose turn at the SM's own port is over at `through_at`, behind those before them.
  // `left` and `arrived` are told when the last byte has left the SM and passed what L2 takes of all SMs.
  void send(double num_bytes, double issued_at, double through_at, Completion* left, Completion* arrived,
            double packet_bytes);
  // The cycle at which a copy may be taken to ask for its lines that comes at `at_cycle`.
  double behind(double num_lines, double at_cycle);

  void complete(double cycle) override;
  void act(uint8_t what) override;

 private:
  struct Store {
    double begin;
    double end;
    double leaves_at;   // position that has passed when it has left
    double through_at;  // cycle before which nobody is told that it has left
    double arrives_at;  // and that it has arrived
    double crossing_bytes;
    double issued_at;
    double packet_bytes;
    Completion* left;
    Completion* arrived;
  };

  void start(double cycle);
  void tell_left(double cycle);
  double pace(double num_bytes, double cycles) const;

  SharedPipe* pipe_;
  uint32_t sm_;
  double crossed_at_ = 0.0;
  double began_at_ = 0.0;
  double current_begin_ = 0.0;
  double current_end_ = 0.0;
  double cycles_per_byte_ = 1.0 / pipe_->rate;  // what stores took lately
  double packet_bytes_ = LINE_BYTES;
  double requests_end_at_ = 0.0;
  double sent_ = 0.0;
  double passed_ = 0.0;
  Fifo<double> ends_;
  Fifo<Store> stores_;  // that have not arrived, oldest first
  uint32_t num_begun_ = 0;
  uint32_t num_left_ = 0;
};

}  // namespace gpusim
