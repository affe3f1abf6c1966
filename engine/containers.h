// Containers of the engine, and their memory: grown pages in WebAssembly, the C heap in a native build.
#pragma once
#include <stddef.h>
#include <stdint.h>

inline void* operator new(size_t, void* place) noexcept { return place; }

namespace gpusim {

// Returns memory for `num_bytes`, aligned to 16 bytes; ends the run where there is none.
void* memory_allocate(size_t num_bytes);

// Gives back what `memory_allocate(num_bytes)` returned.
void memory_release(void* memory, size_t num_bytes);

template <class T>
T* allocate_items(uint32_t num) {
  return static_cast<T*>(memory_allocate(num * sizeof(T)));
}

template <class T>
void exchange(T& one, T& other) {
  T held = one;
  one = other;
  other = held;
}

// Plain values that lie elsewhere, and stay there.
template <class T>
struct Table {
  const T* items = nullptr;
  uint32_t size = 0;
  const T& operator[](uint32_t place) const { return items[place]; }
  const T* begin() const { return items; }
  const T* end() const { return items + size; }
};

// A growing array of plain values, which may be moved byte by byte.
template <class T>
class Vector {
 public:
  Vector() = default;
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;
  ~Vector() { memory_release(items_, capacity_ * sizeof(T)); }

  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](uint32_t place) { return items_[place]; }
  const T& operator[](uint32_t place) const { return items_[place]; }
  T& back() { return items_[size_ - 1]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }

  // `item` is none of its own.
  void push(const T& item) {
    if (size_ == capacity_) reserve(capacity_ ? 2 * capacity_ : 4);
    items_[size_++] = item;
  }

  void pop() { size_--; }
  void clear() { size_ = 0; }
  void truncate(uint32_t size) { size_ = size; }

  // Makes room for `capacity` items in all.
  void reserve(uint32_t capacity) {
    if (capacity <= capacity_) return;
    T* items = allocate_items<T>(capacity);
    if (size_)
      __builtin_memcpy(static_cast<void*>(items), static_cast<const void*>(items_), size_ * sizeof(T));
    memory_release(items_, capacity_ * sizeof(T));
    items_ = items;
    capacity_ = capacity;
  }

  void fill(uint32_t size, const T& item) {
    reserve(size);
    for (uint32_t place = 0; place < size; place++) items_[place] = item;
    size_ = size;
  }

  void erase(uint32_t place) {
    for (uint32_t at = place + 1; at < size_; at++) items_[at - 1] = items_[at];
    size_--;
  }

  // Drops all but the last `num` items.
  void keep_last(uint32_t num) {
    if (size_ <= num) return;
    uint32_t first = size_ - num;
    __builtin_memmove(static_cast<void*>(items_), static_cast<const void*>(items_ + first), num * sizeof(T));
    size_ = num;
  }

  void swap(Vector& other) {
    exchange(items_, other.items_);
    exchange(size_, other.size_);
    exchange(capacity_, other.capacity_);
  }

 private:
  T* items_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
};

// A queue in order of arrival, as a ring of plain values.
template <class T>
class Fifo {
 public:
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& front() { return ring_[head_]; }
  T& back() { return (*this)[size_ - 1]; }
  T& operator[](uint32_t place) { return ring_[(head_ + place) & (ring_.size() - 1)]; }

  void push(const T& item) {
    if (size_ == ring_.size()) grow();
    size_++;
    back() = item;
  }

  T pop() {
    T item = front();
    head_ = (head_ + 1) & (ring_.size() - 1);
    size_--;
    return item;
  }

  void insert(uint32_t place, const T& item) {
    push(item);
    for (uint32_t at = size_ - 1; at > place; at--) (*this)[at] = (*this)[at - 1];
    (*this)[place] = item;
  }

  void erase(uint32_t place) {
    for (uint32_t at = place + 1; at < size_; at++) (*this)[at - 1] = (*this)[at];
    size_--;
  }

 private:
  void grow() {
    Vector<T> larger;
    larger.fill(ring_.size() ? 2 * ring_.size() : 4, T());
    for (uint32_t place = 0; place < size_; place++) larger[place] = (*this)[place];
    ring_.swap(larger);
    head_ = 0;
  }

  Vector<T> ring_;
  uint32_t head_ = 0;
  uint32_t size_ = 0;
};

// Objects at addresses that stay, as many as there is room for.
template <class T>
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    for (T& item : *this) item.T::~T();
    memory_release(items_, capacity_ * sizeof(T));
  }

  uint32_t size() const { return size_; }
  T& operator[](uint32_t place) { return items_[place]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }

  // Makes room, once.
  void reserve(uint32_t capacity) {
    items_ = allocate_items<T>(capacity);
    capacity_ = capacity;
  }

  template <class... Arguments>
  T& emplace(const Arguments&... arguments) {
    return *new (items_ + size_++) T(arguments...);
  }

 private:
  T* items_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
};

// Objects of one type at addresses that stay; what is released is used again.
template <class T>
class Pool {
 public:
  template <class... Arguments>
  T* make(const Arguments&... arguments) {
    if (free_.empty()) {
      T* chunk = allocate_items<T>(CHUNK);
      for (uint32_t place = CHUNK; place--;) free_.push(chunk + place);
    }
    T* found = free_.back();
    free_.pop();
    return new (found) T{arguments...};
  }

  void release(T* object) {
    object->T::~T();
    free_.push(object);
  }

 private:
  static constexpr uint32_t CHUNK = 64;
  Vector<T*> free_;
};

// Objects in the order in which they were appended; each has its links, `older` and `newer`.
template <class T>
class LinkedList {
 public:
  T* oldest() const { return oldest_; }

  void append(T* item) {
    item->older = newest_;
    item->newer = nullptr;
    (newest_ ? newest_->newer : oldest_) = item;
    newest_ = item;
  }

  void remove(T* item) {
    (item->older ? item->older->newer : oldest_) = item->newer;
    (item->newer ? item->newer->older : newest_) = item->older;
  }

 private:
  T* oldest_ = nullptr;
  T* newest_ = nullptr;
};

// Gives back what was pushed with the least `at`, of equals the one that was pushed first. It lies in memory
// as Python's heapq has it, since sums go over it.
template <class At, class Item>
class Heap {
 public:
  struct Entry {
    At at;
    uint64_t number;
    Item item;
    bool before(const Entry& other) const {
      return (at < other.at) | ((at == other.at) & (number < other.number));  // no branches
    }
  };

  bool empty() const { return entries_.empty(); }
  const Entry& first() const { return entries_[0]; }
  const Vector<Entry>& entries() const { return entries_; }
  uint64_t num_pushed() const { return num_pushed_; }

  void push(At at, const Item& item) {
    Entry entry{at, num_pushed_++, item};
    entries_.push(entry);
    rise(entries_.size() - 1, entry);
  }

  Item pop() {
    Item first = entries_[0].item;
    Entry last = entries_.back();
    entries_.pop();
    uint32_t size = entries_.size();
    if (!size) return first;
    uint32_t place = 0;
    for (uint32_t best = 1; best < size; best = 2 * place + 1) {
      uint32_t other = best + 1 < size ? best + 1 : best;
      best = entries_[other].before(entries_[best]) ? other : best;
      entries_[place] = entries_[best];
      place = best;
    }
    rise(place, last);
    return first;
  }

 private:
  // Puts `entry` at `place`, or where those behind it make room.
  void rise(uint32_t place, const Entry& entry) {
    while (place) {
      uint32_t parent = (place - 1) / 2;
      if (!entry.before(entries_[parent])) break;
      entries_[place] = entries_[parent];
      place = parent;
    }
    entries_[place] = entry;
  }

  Vector<Entry> entries_;
  uint64_t num_pushed_ = 0;
};

// When each of several things was first asked for, by its number.
class FirstAsked {
 public:
  // It is asked for at `cycle`.
  double at(uint32_t number, double cycle) {
    while (cycles_.size() <= number) cycles_.push(-1.0);
    if (cycles_[number] < 0.0) cycles_[number] = cycle;
    return cycles_[number];
  }

 private:
  Vector<double> cycles_;  // below 0: nobody has
};

// The tile that a request is for: a panel of a tensor, and a step of it.
struct TileKey {
  uint64_t packed = 0;

  static TileKey of(uint32_t tensor, int32_t panel, int32_t step) {
    uint32_t low = ((tensor & 0xff) << 24) | uint32_t(step & 0xffffff);
    return TileKey{(uint64_t(uint32_t(panel)) << 32) | low};
  }
  int32_t panel() const { return int32_t(packed >> 32); }
  bool operator==(const TileKey& other) const { return packed == other.packed; }
  uint32_t mixed() const {
    uint64_t mixed = packed * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 29;
    mixed *= 0xBF58476D1CE4E5B9ull;
    return uint32_t(mixed >> 32);
  }
};

// A map to objects: open addressing, linear probing. Keys are compared, and `mixed` to a number.
template <class Key, class T>
class Map {
 public:
  // The object of a key; null where it has none.
  T* get(const Key& key) const { return num_ ? entries_[place_of(key)].value : nullptr; }

  // Gives an object to a key that has none.
  void put(const Key& key, T* value) {
    if (4 * (num_ + 1) > 3 * entries_.size()) grow();
    entries_[place_of(key)] = Entry{key, value};
    num_++;
  }

  // Takes its object away from a key that has one.
  void remove(const Key& key) {
    num_--;
    uint32_t hole = place_of(key);
    for (uint32_t next = (hole + 1) & mask(); entries_[next].value != nullptr; next = (next + 1) & mask()) {
      uint32_t wanted = entries_[next].key.mixed();
      if (((next - wanted) & mask()) >= ((next - hole) & mask())) {
        entries_[hole] = entries_[next];
        hole = next;
      }
    }
    entries_[hole].value = nullptr;
  }

 private:
  struct Entry {
    Key key;
    T* value;
  };

  // Where a key is, or would be.
  uint32_t place_of(const Key& key) const {
    uint32_t place = key.mixed() & mask();
    while (entries_[place].value != nullptr && !(entries_[place].key == key)) place = (place + 1) & mask();
    return place;
  }

  uint32_t mask() const { return entries_.size() - 1; }

  void grow() {
    Vector<Entry> before;
    before.swap(entries_);
    entries_.fill(before.empty() ? 16 : 2 * before.size(), Entry{Key(), nullptr});
    for (const Entry& entry : before)
      if (entry.value != nullptr) entries_[place_of(entry.key)] = entry;
  }

  Vector<Entry> entries_;
  uint32_t num_ = 0;
};

}  // namespace gpusim
