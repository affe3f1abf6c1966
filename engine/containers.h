// Containers of the engine: growing arrays, queues, pools of objects, a map from tiles.
#pragma once
#include "memory.h"

namespace gpusim {

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
  const T* data() const { return items_; }

  void push(const T& item) {
    if (size_ == capacity_) {
      T copy = item;
      reserve(capacity_ ? 2 * capacity_ : 4);
      items_[size_++] = copy;
      return;
    }
    items_[size_++] = item;
  }

  void pop() { size_--; }
  void clear() { size_ = 0; }
  void truncate(uint32_t size) { size_ = size; }

  // Makes room for `capacity` items in all.
  void reserve(uint32_t capacity) {
    if (capacity <= capacity_) return;
    T* items = static_cast<T*>(memory_allocate(capacity * sizeof(T)));
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

  void insert(uint32_t place, const T& item) {
    push(item);
    T copy = items_[size_ - 1];
    for (uint32_t at = size_ - 1; at > place; at--) items_[at] = items_[at - 1];
    items_[place] = copy;
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
    T* items = items_;
    uint32_t size = size_;
    uint32_t capacity = capacity_;
    items_ = other.items_;
    size_ = other.size_;
    capacity_ = other.capacity_;
    other.items_ = items;
    other.size_ = size;
    other.capacity_ = capacity;
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
    T copy = item;
    push(copy);
    for (uint32_t at = size_ - 1; at > place; at--) (*this)[at] = (*this)[at - 1];
    (*this)[place] = copy;
  }

  void erase(uint32_t place) {
    for (uint32_t at = place + 1; at < size_; at++) (*this)[at - 1] = (*this)[at];
    size_--;
  }

  void clear() {
    head_ = 0;
    size_ = 0;
  }

 private:
  void grow() {
    Vector<T> larger;
    uint32_t capacity = ring_.size() ? 2 * ring_.size() : 4;
    larger.reserve(capacity);
    for (uint32_t place = 0; place < size_; place++) larger.push((*this)[place]);
    while (larger.size() < capacity) larger.push(T());
    ring_.swap(larger);
    head_ = 0;
  }

  Vector<T> ring_;
  uint32_t head_ = 0;
  uint32_t size_ = 0;
};

// Objects of one type at addresses that stay; what is released is used again.
template <class T>
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  T* make() {
    if (!free_.empty()) {
      T* found = free_.back();
      free_.pop();
      return new (found) T();
    }
    if (num_in_chunk_ == CHUNK || chunks_.empty()) {
      chunks_.push(static_cast<T*>(memory_allocate(CHUNK * sizeof(T))));
      num_in_chunk_ = 0;
    }
    return new (chunks_.back() + num_in_chunk_++) T();
  }

  void release(T* object) {
    object->T::~T();
    free_.push(object);
  }

 private:
  static constexpr uint32_t CHUNK = 64;
  Vector<T*> chunks_;
  Vector<T*> free_;
  uint32_t num_in_chunk_ = 0;
};

// The tile that a request is for: a panel of a tensor, and a step of it.
struct TileKey {
  uint64_t packed = 0;

  static TileKey of(uint32_t tensor, int32_t panel, int32_t step) {
    TileKey key;
    key.packed =
        (uint64_t(uint32_t(panel)) << 32) | (uint64_t(tensor & 0xff) << 24) | uint32_t(step & 0xffffff);
    return key;
  }
  uint32_t tensor() const { return uint32_t(packed >> 24) & 0xff; }
  int32_t panel() const { return int32_t(packed >> 32); }
};

// A map from tiles to objects: open addressing, linear probing.
template <class T>
class TileMap {
 public:
  TileMap() = default;
  TileMap(const TileMap&) = delete;
  TileMap& operator=(const TileMap&) = delete;
  ~TileMap() { memory_release(entries_, capacity_ * sizeof(Entry)); }

  T* get(TileKey key) const {
    if (!num_) return nullptr;
    for (uint32_t place = home(key);; place = (place + 1) & (capacity_ - 1)) {
      const Entry& entry = entries_[place];
      if (entry.value == nullptr) return nullptr;
      if (entry.key.packed == key.packed) return entry.value;
    }
  }

  void put(TileKey key, T* value) {
    if (4 * (num_ + 1) > 3 * capacity_) grow();
    uint32_t place = home(key);
    while (entries_[place].value != nullptr && entries_[place].key.packed != key.packed)
      place = (place + 1) & (capacity_ - 1);
    if (entries_[place].value == nullptr) num_++;
    entries_[place].key = key;
    entries_[place].value = value;
  }

  void remove(TileKey key) {
    uint32_t place = home(key);
    while (entries_[place].key.packed != key.packed || entries_[place].value == nullptr) {
      if (entries_[place].value == nullptr) return;
      place = (place + 1) & (capacity_ - 1);
    }
    num_--;
    uint32_t hole = place;
    for (uint32_t next = (hole + 1) & (capacity_ - 1); entries_[next].value != nullptr;
         next = (next + 1) & (capacity_ - 1)) {
      uint32_t wanted = home(entries_[next].key);
      if (((next - wanted) & (capacity_ - 1)) >= ((next - hole) & (capacity_ - 1))) {
        entries_[hole] = entries_[next];
        hole = next;
      }
    }
    entries_[hole].value = nullptr;
  }

 private:
  struct Entry {
    TileKey key;
    T* value;
  };

  uint32_t home(TileKey key) const {
    uint64_t mixed = key.packed * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 29;
    mixed *= 0xBF58476D1CE4E5B9ull;
    return uint32_t(mixed >> 32) & (capacity_ - 1);
  }

  void grow() {
    Entry* before = entries_;
    uint32_t num_before = capacity_;
    capacity_ = capacity_ ? 2 * capacity_ : 16;
    entries_ = static_cast<Entry*>(memory_allocate(capacity_ * sizeof(Entry)));
    __builtin_memset(static_cast<void*>(entries_), 0, capacity_ * sizeof(Entry));
    num_ = 0;
    for (uint32_t place = 0; place < num_before; place++)
      if (before[place].value != nullptr) put(before[place].key, before[place].value);
    memory_release(before, num_before * sizeof(Entry));
  }

  Entry* entries_ = nullptr;
  uint32_t capacity_ = 0;
  uint32_t num_ = 0;
};

}  // namespace gpusim
