// The crossbar between SMs and L2: ports, slices, links of GPCs, and the merging of requests.
#include "crossbar.h"

#include "machine.h"

namespace gpusim {

namespace {

constexpr double MOST_ROW_BYTES = 2048.0;  // of a box; CUDA driver API, cuTensorMapEncodeTiled
constexpr double NARROW = 1.2;             // from how much more than with all SMs live a link is looked at
constexpr uint32_t DRAWS_APART = 7;        // by how many draws SMs are apart

// A request's last byte is in the SM a latency after it could pass the port and its tile's fill was in L2.
void hand_over(const TransferPart& part, double passed_at, double spread_cycles, double ahead_cycles) {
  double earliest = part.earliest - ahead_cycles;
  double latency = part.latency_cycles + spread_cycles;
  double ready_at = larger(passed_at, earliest);
  TileState* tile = part.tile;
  if (tile->is_filling) {
    tile->waiting.push(FillWaiter{ready_at, latency, part.done, part.by_warps});
  } else if (tile->done_at <= ready_at) {
    part.done->complete(ready_at + latency);
  } else if (part.by_warps == nullptr) {
    part.done->complete(tile->done_at + latency);
  } else {  // on its way: each warp waits for its own part of it
    double come_at = larger(ready_at, tile->part_at);
    part.by_warps->late_cycles = tile->done_at - come_at;
    part.done->complete(come_at + latency);
  }
}

// A GPC that shares with others: how many turns it has, how much it takes at most, and what it gets.
struct Sharer {
  uint32_t gpc;
  int32_t num_turns;
  double most;
  double gets = 0.0;
  bool is_wanting = true;
};

// Shares `total` in turns; what one leaves the others share.
void by_turns(double total, Vector<Sharer>& sharers) {
  for (uint32_t num_wanting = sharers.size(); num_wanting;) {
    int32_t num_turns = 0;
    for (const Sharer& each : sharers) num_turns += each.is_wanting ? each.num_turns : 0;
    double turn = total / num_turns;
    uint32_t num_before = num_wanting;
    double taken = 0.0;
    for (Sharer& each : sharers) {
      if (!each.is_wanting || each.most > turn * each.num_turns) continue;
      each.gets = each.most;
      each.is_wanting = false;
      taken += each.gets;
      num_wanting--;
    }
    total -= taken;
    if (num_wanting < num_before) continue;
    for (Sharer& each : sharers)
      if (each.is_wanting) each.gets = turn * each.num_turns;
    return;
  }
}

}  // namespace

Crossbar::Crossbar() {
  stores.init(&agenda, input.xbar->write_bytes_per_cycle, input.xbar->sm_write_bytes_per_cycle);
  for (uint32_t partition = 0; partition < input.partitions.size; partition++) {
    double total = input.partitions[partition].slices_bytes_per_cycle;
    if (total > 0.0) slices[partition].init(&agenda, total, input.xbar->sm_read_bytes_per_cycle);
  }
  gpc_links_.reserve(input.gpc_links.size);
  for (const GpcLinkRecord& record : input.gpc_links) gpc_links_.emplace(record);
  write_links_.reserve(input.write_links.size);
  for (const WriteLinkRecord& record : input.write_links) write_links_.emplace(record.bytes_per_cycle);
  ports_.reserve(input.sms.size);
  store_ports_.reserve(input.sms.size);
  sm_store_pipes_.reserve(input.sms.size);
  for (const SmRecord& record : input.sms) {
    uint32_t sm = ports_.size();
    SmPort& port = ports_.emplace();
    port.slices = &slices[record.partition];
    port.partition = uint32_t(record.partition);
    port.merge_region = uint32_t(record.merge_region);
    port.num_draws = DRAWS_APART * sm;
    port.gpc = uint32_t(record.gpc);
    store_ports_.emplace(&stores, sm);
    sm_store_pipes_.emplace(input.xbar->sm_write_bytes_per_cycle);
  }
}

// ------------------------------------------------------------------------------------------ who is live

void Crossbar::set_live(uint32_t sm, bool is_live) {
  int32_t change = is_live ? 1 : -1;
  GpcLink& mine = gpc_links_[ports_[sm].gpc];
  mine.num_live += change;
  if (input.sms[sm].is_lone) mine.num_lone_live += change;
  gpc_links_[uint32_t(input.write_links[uint32_t(input.sms[sm].write_link)].gpc)].num_storing += change;
  Vector<Sharer> by_parts;  // threads of parts of GPCs take turns, bulk copies of GPCs do
  Vector<Sharer> by_gpcs;
  int32_t num_live = 0;
  double sm_rate = input.xbar->sm_read_bytes_per_cycle;
  for (uint32_t gpc = 0; gpc < gpc_links_.size(); gpc++) {
    const GpcLink& link = gpc_links_[gpc];
    if (link.partition != mine.partition || !link.num_live) continue;
    double most = smaller(link.pipe.rate, link.num_live * sm_rate);
    by_parts.push(Sharer{gpc, link.num_turns(), most});
    by_gpcs.push(Sharer{gpc, 1, most});
    num_live += link.num_live;
  }
  if (!num_live) return;
  double total = slices[mine.partition].total;
  double each = smaller(sm_rate, total / num_live);
  by_turns(total, by_parts);
  by_turns(total, by_gpcs);
  for (uint32_t place = 0; place < by_parts.size(); place++) {
    GpcLink& link = gpc_links_[by_parts[place].gpc];
    double gets = by_parts[place].gets;
    double share = link.num_live * each;
    link.is_narrow = share > larger(link.pipe.rate, NARROW * link.whole_share_bytes_per_cycle);
    link.share = gets != 0.0 ? gets / share : 1.0;
    link.bulk_share = by_gpcs[place].gets / share;
  }
  share_stores(uint32_t(input.sms[sm].partition));
}

// What crosses is stored in turns of GPCs; a GPC's is its parts', who leave each other nothing.
void Crossbar::share_stores(uint32_t partition) {
  Vector<Sharer> sharers;
  for (uint32_t gpc = 0; gpc < gpc_links_.size(); gpc++)
    if (gpc_links_[gpc].partition == partition && gpc_links_[gpc].num_storing)
      sharers.push(Sharer{gpc, 1, input.xbar->gpc_write_bytes_per_cycle});
  by_turns(input.partitions[partition].store_bytes_per_cycle, sharers);
  for (uint32_t link = 0; link < write_links_.size(); link++) {
    const WriteLinkRecord& record = input.write_links[link];
    for (const Sharer& each : sharers)
      if (each.gpc == uint32_t(record.gpc))
        write_links_[link].rate = each.gets / input.xbar->num_gpc_parts * record.width;
  }
}

// ------------------------------------------------------------------------------------------ reads

double Crossbar::behind_stores(uint32_t sm, double num_lines, double at_cycle) {
  StorePort& store_port = store_ports_[sm];
  if (!store_port.is_busy || input.xbar->request_turn_packets == 0.0) return at_cycle;
  if (input.xbar->line_request_bytes != 0.0) {
    Pipe& link = write_links_[uint32_t(input.sms[sm].write_link)];
    link.reserve(num_lines * input.xbar->line_request_bytes, agenda.cycle);
  }
  return store_port.behind(num_lines, at_cycle);
}

void Crossbar::read(MemoryRequest& request, Completion* done, const void* group, Pipe* places,
                    ZeroRows zeros) {
  SmPort* port = &ports_[request.sm];
  TileState* tile = l2.look_up(request, port->partition);
  double num_bytes = request.num_bytes * request.fetched.crossings;
  double earliest = request.issued_at + num_bytes / input.xbar->alone_bytes_per_cycle;
  double across_at;
  double latency = l2.reach(request, tile, port->partition, &across_at);
  latency += distance_cycles(request.sm);
  if (across_at > earliest) earliest = across_at;
  if (places != nullptr) {
    double held = l2.held_cycles(tile, latency, request.issued_at);
    double last = places->reserve(request.num_bytes * held, request.issued_at) - held;
    if (last > earliest) earliest = last;
  }
  bool is_row = group != nullptr && request.num_bytes > MOST_ROW_BYTES * request.num_rows;
  LineBatch batch;
  batch.num_bytes = num_bytes;
  batch.weight = is_row ? input.xbar->bulk_weight : 1.0;
  batch.reads = request.fetched.reads;
  batch.request_bytes = request.fetched.num_line_requests * input.l2->request_bytes;
  batch.zeros = zeros;
  counters.xbar.asked_bytes += num_bytes;
  if (input.xbar->merges != 0.0) {
    double moved = port->slices->moved();
    batch.asked_at = moved + (request.issued_at - agenda.cycle) * port->slices->rate;
    batch.tile = tile;
    batch.sharing = request.fetched.sharing;
    batch.request_sharing = request.fetched.request_sharing;
  } else {
    counters.xbar.passed_bytes += num_bytes;
    counters.xbar.served_bytes += num_bytes * request.fetched.reads;
  }
  if (zeros.is_any) count_zeros(zeros, 1);
  MemoryRequest* by_warps = request.num_warps > 1 ? &request : nullptr;
  deliver(request.sm, batch, request, TransferPart{tile, earliest, latency, done, by_warps}, group);
}

void Crossbar::multicast(MemoryRequest& request, const Vector<Receiver>& receivers, double bytes_per_cycle,
                         ZeroRows zeros) {
  uint32_t partition = ports_[request.sm].partition;
  TileState* tile = l2.look_up(request, partition);
  double crossing = request.num_bytes * request.fetched.crossings;
  double earliest = request.issued_at + crossing / input.xbar->alone_bytes_per_cycle;
  double across_at;
  double latency = l2.reach(request, tile, partition, &across_at);
  if (across_at > earliest) earliest = across_at;
  bool is_row = request.num_bytes > MOST_ROW_BYTES * request.num_rows;
  double weight = is_row ? input.xbar->bulk_weight : input.xbar->multicast_weight;
  weight = larger(weight, request.fetched.num_line_requests * input.l2->request_bytes / crossing);
  double stretch = larger(1.0, input.xbar->alone_bytes_per_cycle / bytes_per_cycle);
  double num = receivers.size();
  counters.xbar.asked_bytes += crossing * num;
  counters.xbar.passed_bytes += crossing * num;
  counters.xbar.served_bytes += crossing * request.fetched.reads;
  if (zeros.is_any) count_zeros(zeros, receivers.size());
  for (const Receiver& receiver : receivers) {
    LineBatch batch;
    batch.tile = tile;
    batch.num_bytes = crossing * stretch;
    batch.weight = weight / stretch;
    batch.reads = request.fetched.reads;
    batch.merges = false;
    batch.zeros = zeros;
    TransferPart part{tile, earliest, latency, receiver.done, nullptr};
    deliver(receiver.sm, batch, request, part, receiver.done);
    weight = 0.0;
    zeros.num_carried_bytes = 0.0;
  }
}

void Crossbar::read_zeros(MemoryRequest& request, const Vector<Receiver>& receivers, ZeroRows zeros,
                          const void* group) {
  double earliest = request.issued_at + zeros.num_bytes / input.xbar->alone_bytes_per_cycle;
  count_zeros(zeros, receivers.size());
  for (const Receiver& receiver : receivers) {
    LineBatch batch;
    batch.reads = request.fetched.reads;
    batch.zeros = zeros;
    double latency = input.l2->near_latency_cycles + distance_cycles(receiver.sm);
    TransferPart part{&zero_tile_, earliest, latency, receiver.done, nullptr};
    deliver(receiver.sm, batch, request, part, group == nullptr ? receiver.done : group);
    zeros.num_carried_bytes = 0.0;
  }
}

void Crossbar::count_zeros(const ZeroRows& zeros, uint32_t num_receivers) {
  counters.xbar.asked_bytes += zeros.num_bytes * num_receivers;
  counters.xbar.read_bytes += zeros.num_bytes * num_receivers;
}

void Crossbar::deliver(uint32_t sm, const LineBatch& batch, const MemoryRequest& request,
                       const TransferPart& part, const void* group) {
  counters.xbar.read_bytes += request.num_bytes * request.fetched.crossings;
  SmPort* port = &ports_[sm];
  Transfer* last = port->waiting.empty() ? port->active : port->waiting.back();
  if (last != nullptr && group != nullptr && last->group == group) {
    last->join(batch, part);
    return;
  }
  Transfer* transfer = transfers_.make(port, batch, part, group);
  if (port->active == nullptr)
    transfer->start();
  else
    port->waiting.push(transfer);
}

// ------------------------------------------------------------------------------------------ transfers

Transfer::Transfer(SmPort* port, const LineBatch& batch, const TransferPart& part, const void* its_group)
    : group(its_group), port_(port), num_bytes_(batch.num_bytes) {
  batches_.push(batch);
  part.tile->num_uses++;
  parts_.push(part);
}

void Transfer::start() {
  port_->active = this;
  Crossbar::GpcLink& link = crossbar.gpc_links_[port_->gpc];
  SharedPipe* slices = port_->slices;
  double share = slices->share_now(group == nullptr ? link.share : link.bulk_share);
  double moved = 0.0;
  double carried = 0.0;
  for (const LineBatch& batch : batches_) {
    BatchPrice price = crossbar.coalescer.price(batch, port_, moved, share);
    ahead_cycles_ = smaller(ahead_cycles_, price.ahead_cycles);
    moved += price.moved_bytes;
    carried += price.carried_bytes;
    wait_at_slices(batch, moved);
  }
  batches_.clear();
  if (link.is_narrow) link_at_ = link.pipe.reserve(carried, agenda.cycle);
  num_moved_bytes_ = moved;
  weight_ = carried / moved;
  ticket_ = slices->transfer(moved, this, weight_, share);
}

void Transfer::join(const LineBatch& batch, const TransferPart& part) {
  num_bytes_ += batch.num_bytes;
  if (ticket_ == nullptr) {
    batches_.push(batch);
  } else {
    SharedPipe* slices = port_->slices;
    BatchPrice price = crossbar.coalescer.price(batch, port_, slices->left(ticket_), ticket_->share);
    ahead_cycles_ = smaller(ahead_cycles_, price.ahead_cycles);
    double total = num_moved_bytes_ + price.moved_bytes;
    wait_at_slices(batch, total);
    weight_ = (weight_ * num_moved_bytes_ + price.carried_bytes) / total;
    num_moved_bytes_ = total;
    Crossbar::GpcLink& link = crossbar.gpc_links_[port_->gpc];
    if (link.is_narrow) link_at_ = link.pipe.reserve(price.carried_bytes, agenda.cycle);
    ticket_ = slices->extend(ticket_, price.moved_bytes, weight_);
  }
  part.tile->num_uses++;
  parts_.push(part);
}

void Transfer::wait_at_slices(const LineBatch& batch, double moved_bytes) {
  TileState* tile = batch.tile;
  if (tile != nullptr && tile->is_there_at(agenda.cycle))
    queued_.push(QueuedTile{tile, batch.num_bytes, moved_bytes});
}

// The last byte has passed the slices and the port.
void Transfer::complete(double cycle) {
  ticket_ = nullptr;
  if (!port_->waiting.empty())
    port_->waiting.pop()->start();
  else
    port_->active = nullptr;
  if (cycle < link_at_) cycle = link_at_;
  double queued = 0.0;
  for (const QueuedTile& item : queued_) {
    double behind = (num_moved_bytes_ - item.moved_bytes) / port_->slices->rate;
    double waits = crossbar.coalescer.queued_cycles(port_, item.tile, item.num_bytes);
    queued = larger(queued, waits - behind);
  }
  double spread = l2.spread_cycles(num_bytes_ / LINE_BYTES) + queued;
  double ahead = ahead_cycles_ < INFINITE ? ahead_cycles_ : 0.0;
  for (const TransferPart& part : parts_) hand_over(part, cycle, spread, ahead);
  for (const TransferPart& part : parts_) {
    part.tile->num_uses--;
    l2.release_if_unused(part.tile);
  }
  crossbar.transfers_.release(this);
}

// ------------------------------------------------------------------------------------------ stores

double Crossbar::packet_bytes(const AccessRecord& access, StoreKind kind) const {
  double lines = access.num_lines * input.xbar->store_packet_bytes;
  if (kind == StoreKind::RED) {
    double headers = access.num_lines * LINE_BYTES * input.xbar->red_header_fraction;
    return larger(lines, access.num_sectors * SECTOR_BYTES + headers);
  }
  // of sectors half full, one mask for a line's
  double masks = 2.0 * (access.num_sectors * SECTOR_BYTES - access.num_bytes) / SECTOR_BYTES;
  double sectors =
      access.num_sectors + smaller(smaller(larger(masks, 0.0), access.num_lines), access.num_sectors);
  return larger(lines, sectors * SECTOR_BYTES);
}

void Crossbar::write(const MemoryRequest& request, Completion* left, StoreArrival* arrived,
                     double num_distinct_bytes, StoreKind kind, double num_more_bytes,
                     double num_packet_bytes, double packet_bytes) {
  left = l2.store(request, left, num_distinct_bytes, kind);
  double num_bytes = request.num_bytes + num_more_bytes;
  if (kind == StoreKind::RED) num_bytes += request.num_bytes * input.xbar->red_header_fraction;
  if (num_packet_bytes > num_bytes) num_bytes = num_packet_bytes;
  double left_at = sm_store_pipes_[request.sm].reserve(num_bytes, request.issued_at);
  // a packet is as long on a link as on the port
  double crossing = larger(request.num_bytes, num_packet_bytes);
  store_ports_[request.sm].send(crossing, request.issued_at, left_at, left, arrived, packet_bytes);
  counters.xbar.write_bytes += request.num_bytes;
}

double Crossbar::cross_store(uint32_t sm, double crossing_bytes, double since, double* last_at) {
  const SmRecord& record = input.sms[sm];
  double across_at;
  l2.cross(crossing_bytes, uint32_t(record.partition), since, &across_at, last_at);
  double passed_at = write_links_[uint32_t(record.write_link)].reserve(crossing_bytes, since);
  *last_at = larger(*last_at, passed_at);
  return larger(across_at, passed_at);
}

}  // namespace gpusim
