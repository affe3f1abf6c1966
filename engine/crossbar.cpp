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
  double written = 0.0;  // as many bytes a cycle as slices are read, at most
  for (uint32_t partition = 0; partition < input.partitions.size; partition++) {
    double total = input.partitions[partition].slices_bytes_per_cycle;
    if (total > 0.0) slices[partition].init(&agenda, total, input.xbar->sm_read_bytes_per_cycle);
    written += total;
  }
  stores.init(&agenda, written, input.xbar->sm_write_bytes_per_cycle);
  gpc_links_.reserve(input.gpc_links.size);
  for (const GpcLinkRecord& record : input.gpc_links) gpc_links_.emplace(record);
  write_links_.reserve(input.write_links.size);
  for (const WriteLinkRecord& record : input.write_links) write_links_.emplace(record.bytes_per_cycle);
  ports_.reserve(input.sms.size);
  for (const SmRecord& record : input.sms) ports_.emplace(record, ports_.size());
}

SmPort::SmPort(const SmRecord& record, uint32_t sm)
    : gpc(uint32_t(record.gpc)), stores(&crossbar.stores, sm) {
  slices = &crossbar.slices[record.partition];
  partition = uint32_t(record.partition);
  coalesce_region = uint32_t(record.coalesce_region);
  draws.num = DRAWS_APART * sm;
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
    if (link.record.partition != mine.record.partition || !link.num_live) continue;
    double most = smaller(link.pipe.rate, link.num_live * sm_rate);
    by_parts.push(Sharer{gpc, link.num_turns(), most});
    by_gpcs.push(Sharer{gpc, 1, most});
    num_live += link.num_live;
  }
  if (!num_live) return;
  double total = slices[mine.record.partition].total;
  double each = smaller(sm_rate, total / num_live);
  by_turns(total, by_parts);
  by_turns(total, by_gpcs);
  for (uint32_t place = 0; place < by_parts.size(); place++) {
    GpcLink& link = gpc_links_[by_parts[place].gpc];
    double gets = by_parts[place].gets;
    double share = link.num_live * each;
    link.is_narrow = share > larger(link.pipe.rate, NARROW * link.record.whole_share_bytes_per_cycle);
    link.share = gets != 0.0 ? gets / share : 1.0;
    link.bulk_share = by_gpcs[place].gets / share;
  }
  share_stores(uint32_t(input.sms[sm].partition));
}

// What crosses is stored in turns of GPCs; a GPC's is its parts', who leave each other nothing.
void Crossbar::share_stores(uint32_t partition) {
  Vector<Sharer> sharers;
  for (uint32_t gpc = 0; gpc < gpc_links_.size(); gpc++)
    if (gpc_links_[gpc].record.partition == partition && gpc_links_[gpc].num_storing)
      sharers.push(Sharer{gpc, 1, input.xbar->gpc_write_bytes_per_cycle});
  by_turns(input.partitions[partition].store_bytes_per_cycle, sharers);
  for (uint32_t link = 0; link < write_links_.size(); link++) {
    const WriteLinkRecord& record = input.write_links[link];
    for (const Sharer& each : sharers)
      if (each.gpc == uint32_t(record.gpc))
        write_links_[link].rate = each.gets / input.xbar->num_gpc_store_ports * record.width;
  }
}

// ------------------------------------------------------------------------------------------ reads

double Crossbar::behind_stores(uint32_t sm, double num_lines, double at_cycle) {
  StorePort& store_port = ports_[sm].stores;
  if (!store_port.is_busy || input.xbar->request_interval_packets == 0.0) return at_cycle;
  if (input.xbar->line_request_bytes != 0.0) {
    Pipe& link = write_links_[uint32_t(input.sms[sm].write_link)];
    link.reserve(num_lines * input.xbar->line_request_bytes, agenda.cycle);
  }
  return store_port.behind(num_lines, at_cycle);
}

// Where a request's lines come from, and when they are there at the soonest; rows of zeros come from no tile.
TransferPart Crossbar::look_up(const MemoryRequest& request, const ZeroRows& zeros, Completion* done) {
  bool is_zeros = request.num_bytes == 0.0 && zeros.is_any;
  double num_bytes = is_zeros ? zeros.num_bytes : request.num_bytes * request.fetched.crossings;
  double earliest = request.issued_at + num_bytes / input.xbar->alone_bytes_per_cycle;
  if (is_zeros) return TransferPart{&zero_tile_, earliest, input.l2->near_latency_cycles, done, nullptr};
  uint32_t partition = ports_[request.sm].partition;
  TileState* tile = l2.look_up(request, partition);
  double across_at;
  double latency = l2.reach(request, tile, partition, &across_at);
  return TransferPart{tile, larger(across_at, earliest), latency, done, nullptr};
}

void Crossbar::read(MemoryRequest& request, Completion* done, const void* group, Pipe* places,
                    const ZeroRows& zeros) {
  TransferPart part = look_up(request, zeros, done);
  part.latency_cycles += distance_cycles(request.sm);
  if (request.num_warps > 1) part.by_warps = &request;
  if (places != nullptr) {
    double held = l2.held_cycles(part.tile, part.latency_cycles, request.issued_at);
    double last = places->reserve(request.num_bytes * held, request.issued_at) - held;
    if (last > part.earliest) part.earliest = last;
  }
  double num_bytes = request.num_bytes * request.fetched.crossings;
  bool is_row = group != nullptr && request.num_bytes > MOST_ROW_BYTES * request.num_rows;
  LineBatch batch{num_bytes, is_row ? input.xbar->bulk_weight : 1.0, request.fetched.reads, zeros};
  batch.request_bytes = request.fetched.num_line_requests * input.l2->request_bytes;
  if (input.xbar->coalesces == 0.0) {
    counters.xbar.passed_bytes += num_bytes;
    counters.xbar.served_bytes += num_bytes * request.fetched.reads;
  } else if (num_bytes != 0.0 || !zeros.is_any) {
    SharedPipe* slices = ports_[request.sm].slices;
    double moved = slices->moved();
    batch.asked_at = moved + (request.issued_at - agenda.cycle) * slices->rate;
    batch.tile = part.tile;
    batch.coalesces = true;
    batch.sharing = request.fetched.sharing;
    batch.request_sharing = request.fetched.request_sharing;
  }
  count_reads(num_bytes, zeros, 1.0);
  deliver(num_bytes, request.sm, batch, part, group);
}

void Crossbar::multicast(const MemoryRequest& request, Receiver* receivers, double bytes_per_cycle,
                         const ZeroRows& zeros) {
  TransferPart part = look_up(request, zeros, nullptr);
  double num_bytes = request.num_bytes * request.fetched.crossings;
  bool is_row = request.num_bytes > MOST_ROW_BYTES * request.num_rows;
  double weight = is_row ? input.xbar->bulk_weight : input.xbar->multicast_weight;
  double stretch = larger(1.0, input.xbar->alone_bytes_per_cycle / bytes_per_cycle);
  if (num_bytes != 0.0)
    weight = larger(weight, request.fetched.num_line_requests * input.l2->request_bytes / num_bytes);
  LineBatch batch{num_bytes * stretch, weight / stretch, request.fetched.reads, zeros};
  if (num_bytes != 0.0) batch.tile = part.tile;
  double num = 0.0;
  for (Receiver* each = receivers; each != nullptr; each = each->next) num += 1.0;
  counters.xbar.passed_bytes += num_bytes * num;
  counters.xbar.served_bytes += num_bytes * request.fetched.reads;
  count_reads(num_bytes, zeros, num);
  for (Receiver* each = receivers; each != nullptr; each = each->next) {
    part.done = each;
    if (num_bytes == 0.0) part.latency_cycles = input.l2->near_latency_cycles + distance_cycles(each->sm);
    deliver(num_bytes, each->sm, batch, part, each);
    batch.weight = 0.0;
    batch.zeros.num_carried_bytes = 0.0;
  }
}

void Crossbar::count_reads(double num_bytes, const ZeroRows& zeros, double num_receivers) {
  counters.xbar.asked_bytes += num_bytes * num_receivers;
  counters.xbar.asked_bytes += zeros.num_bytes * num_receivers;
  counters.xbar.read_bytes += zeros.num_bytes * num_receivers;
}

void Crossbar::deliver(double num_bytes, uint32_t sm, const LineBatch& batch, const TransferPart& part,
                       const void* group) {
  counters.xbar.read_bytes += num_bytes;
  SmPort* port = &ports_[sm];
  Transfer* last = port->waiting.empty() ? port->active : port->waiting.back();
  bool joins = last != nullptr && group != nullptr && last->group == group;
  if (!joins) {
    last = transfers_.make(port, group);
    if (port->active != nullptr) port->waiting.push(last);
  }
  last->join(batch, part);
}

// ------------------------------------------------------------------------------------------ transfers

void Transfer::join(const LineBatch& batch, const TransferPart& part) {
  num_bytes_ += batch.num_bytes;
  part.tile->num_uses++;
  parts_.push(part);
  if (port_->active == nullptr)
    start(Table<LineBatch>{&batch, 1});
  else if (port_->active == this)
    extend(batch);
  else
    batches_.push(batch);
}

// A request comes while those before it are under way.
void Transfer::extend(const LineBatch& batch) {
  SharedPipe* slices = port_->slices;
  double before = num_moved_bytes_;
  BatchPrice price = take(batch, slices->left(ticket_), ticket_->share);
  weight_ = (weight_ * before + price.carried_bytes) / num_moved_bytes_;
  Crossbar::GpcLink& link = crossbar.gpc_links_[port_->gpc];
  if (link.is_narrow) link_at_ = link.pipe.reserve(price.carried_bytes, agenda.cycle);
  ticket_ = slices->extend(ticket_, price.moved_bytes, weight_);
}

void Transfer::start(Table<LineBatch> batches) {
  port_->active = this;
  Crossbar::GpcLink& link = crossbar.gpc_links_[port_->gpc];
  SharedPipe* slices = port_->slices;
  double share = slices->share_now(group == nullptr ? link.share : link.bulk_share);
  double carried = 0.0;
  for (const LineBatch& batch : batches) carried += take(batch, num_moved_bytes_, share).carried_bytes;
  if (link.is_narrow) link_at_ = link.pipe.reserve(carried, agenda.cycle);
  weight_ = num_moved_bytes_ != 0.0 ? carried / num_moved_bytes_ : 0.0;
  ticket_ = slices->transfer(num_moved_bytes_, this, weight_, share);
}

// Takes a batch along, behind so many bytes; it may wait in the slices' queues.
BatchPrice Transfer::take(const LineBatch& batch, double behind_bytes, double pace) {
  BatchPrice price = crossbar.coalescer.price(batch, port_, behind_bytes, pace);
  ahead_cycles_ = smaller(ahead_cycles_, price.ahead_cycles);
  num_moved_bytes_ += price.moved_bytes;
  TileState* tile = batch.tile;
  if (tile != nullptr && tile->is_there_at(agenda.cycle))
    queued_.push(QueuedTile{tile, batch.num_bytes, num_moved_bytes_});
  return price;
}

// The last byte has passed the slices and the port.
void Transfer::complete(double cycle) {
  port_->active = nullptr;
  if (!port_->waiting.empty()) {
    Transfer* next = port_->waiting.pop();
    next->start(Table<LineBatch>{next->batches_.begin(), next->batches_.size()});
  }
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

void Crossbar::write(const MemoryRequest& request, Completion* left, Completion* arrived,
                     double num_distinct_bytes, StoreKind kind, double num_packet_bytes, double packet_bytes,
                     double num_more_bytes) {
  left = l2.store(request, left, num_distinct_bytes, kind);
  double num_bytes = request.num_bytes + num_more_bytes;
  if (kind == StoreKind::RED) num_bytes += request.num_bytes * input.xbar->red_header_fraction;
  if (num_packet_bytes > num_bytes) num_bytes = num_packet_bytes;
  SmPort& port = ports_[request.sm];
  double left_at = port.store_pipe.reserve(num_bytes, request.issued_at);
  // a packet is as long on a link as on the port
  double crossing = larger(request.num_bytes, num_packet_bytes);
  port.stores.send(crossing, request.issued_at, left_at, left, arrived, packet_bytes);
  counters.xbar.write_bytes += request.num_bytes;
}

double Crossbar::cross_store(uint32_t sm, double crossing_bytes, double since, double* last_at) {
  const SmRecord& record = input.sms[sm];
  double across_at = l2.cross(crossing_bytes, uint32_t(record.partition), since, last_at);
  double passed_at = write_links_[uint32_t(record.write_link)].reserve(crossing_bytes, since);
  *last_at = larger(*last_at, passed_at);
  return larger(across_at, passed_at);
}

}  // namespace gpusim
