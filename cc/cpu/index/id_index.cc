#include "cc/cpu/index/id_index.h"

#include <algorithm>
#include <utility>

#include "cc/base/prefetch.h"
#include "cc/base/vectorize.h"

namespace sok {
namespace {

constexpr int64_t kMinBuckets = 4;
// Far beyond any memory size; keeps sizes in bytes from overflowing.
constexpr int64_t kMaxIds = int64_t{1} << 56;
// Ids are hashed and their buckets prefetched in blocks of this size, one block ahead of the search. A memory
// read takes about 300 ns, as long as 64 lookups. While the processor waits for a page walk it executes some
// hundreds of the following instructions: the fewer a prefetch needs, the more page walks overlap.
constexpr int64_t kAhead = 64;
// The home buckets of this many ids are searched first, then the later buckets of the ids that were not found
// there. A multiple of kAhead.
constexpr int64_t kBlock = 1024;
// A growing index moves at least this many buckets at a time, 1 MiB, which takes about a millisecond, and
// this many for each new id. A bucket has two ids on average, so a growth ends when a quarter of the ids have
// come that make the next one necessary.
constexpr int64_t kMovedAtOnce = int64_t{1} << 14;
constexpr int64_t kMovedForAnId = 2;

}  // namespace

int IdIndex::Bucket::taken() const {
  int taken = 0;
  for (const int64_t row_plus_1 : rows_plus_1) taken += row_plus_1 != 0;
  return taken;
}

int IdIndex::Bucket::PlaceOf(int64_t id) const {
  int place = 0;
  while (ids[place] != id) ++place;
  return place;
}

void IdIndex::Bucket::Append(int64_t id, int64_t row_plus_1) {
  const int place = taken();
  ids[place] = id;
  rows_plus_1[place] = row_plus_1;
}

void IdIndex::Bucket::Remove(int place) {
  const int last = taken() - 1;
  ids[place] = std::exchange(ids[last], 0);
  rows_plus_1[place] = std::exchange(rows_plus_1[last], 0);
  if (place == last) ids[place] = rows_plus_1[place] = 0;
}

IdIndex& IdIndex::operator=(IdIndex&& other) noexcept {
  buckets_ = std::exchange(other.buckets_, Array());
  old_ = std::exchange(other.old_, Array());
  first_ = other.first_;
  moved_ = other.moved_;
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Status IdIndex::Reserve(int64_t n) {
  if (n > kMaxIds) return ResourceExhausted("cannot make room for ", n, " ids");
  if (2 * n <= kPlaces * buckets_.size()) return OkStatus();
  int64_t num_buckets = kMinBuckets;
  while (kPlaces * num_buckets < 2 * n) num_buckets *= 2;
  StatusOr<PageBuffer> memory = PageBuffer::Allocate(num_buckets * static_cast<int64_t>(sizeof(Bucket)));
  if (!memory.ok()) {
    return ResourceExhausted("an index with room for ", kPlaces * num_buckets / 2,
                             " ids: ", memory.status().message());
  }
  Move(old_.size());
  Array larger;
  larger.memory = std::move(memory.value());
  larger.buckets = static_cast<Bucket*>(larger.memory.data());
  larger.mask = static_cast<uint64_t>(num_buckets) - 1;
  larger.shift = 64 - __builtin_ctzll(num_buckets);
  old_ = std::exchange(buckets_, std::move(larger));
  first_ = grows() ? old_.BeginOfRun() : 0;
  moved_ = 0;
  Move(kMovedAtOnce);
  return OkStatus();
}

void IdIndex::Move(int64_t buckets) {
  if (!grows()) return;
  const uint64_t all = old_.mask + 1;
  const uint64_t end = std::min(all, moved_ + static_cast<uint64_t>(buckets));
  // Not between a full bucket and the next one, which may have ids of the first.
  bool was_full = false;
  while (moved_ < end || was_full) {
    Bucket& bucket = old_.buckets[(first_ + moved_++) & old_.mask];
    was_full = bucket.full();
    for (int k = 0; k < bucket.taken(); ++k) buckets_.Append(bucket.ids[k], bucket.rows_plus_1[k]);
    bucket = Bucket();
  }
  if (moved_ >= all) old_ = Array();
}

uint64_t IdIndex::Array::EndOfSearch(int64_t id, uint64_t home) const {
  uint64_t at = home;
  while (buckets[at].RowPlus1(id) == 0 && buckets[at].full()) at = Next(at);
  return at;
}

uint64_t IdIndex::Array::BeginOfRun() const {
  uint64_t before = mask;
  while (buckets[before].full()) --before;
  return Next(before);
}

void IdIndex::Array::Append(int64_t id, int64_t row_plus_1) {
  uint64_t at = Home(id);
  while (buckets[at].full()) at = Next(at);
  buckets[at].Append(id, row_plus_1);
}

bool IdIndex::Array::Erase(int64_t id) {
  uint64_t hole = EndOfSearch(id, Home(id));
  if (buckets[hole].RowPlus1(id) == 0) return false;
  // A search continues past a bucket only if it is full. A bucket with a new free place must therefore take
  // back an id that overflowed from it; the place of that id is the next hole.
  bool was_full = buckets[hole].full();
  buckets[hole].Remove(buckets[hole].PlaceOf(id));
  while (was_full) {
    const uint64_t next = MoveInto(hole);
    if (next == hole) break;
    was_full = buckets[next].taken() == kPlaces - 1;
    hole = next;
  }
  return true;
}

uint64_t IdIndex::Array::MoveInto(uint64_t hole) {
  for (uint64_t at = Next(hole); at != hole; at = Next(at)) {
    Bucket& bucket = buckets[at];
    const bool full = bucket.full();
    for (int k = 0; k < bucket.taken(); ++k) {
      const uint64_t from_home = (at - Home(bucket.ids[k])) & mask;
      if (from_home < ((at - hole) & mask)) continue;
      buckets[hole].Append(bucket.ids[k], bucket.rows_plus_1[k]);
      bucket.Remove(k);
      return at;
    }
    if (!full) break;
  }
  return hole;
}

template <typename HomeOf>
inline void IdIndex::PrefetchHomes(Span<const int64_t> ids, const HomeOf& home_of, const Bucket** homes) {
  if (ids.size() == kAhead) {
    for (int64_t i = 0; i < kAhead; ++i) homes[i] = home_of(ids[i]);
  } else {
    for (int64_t i = 0; i < ids.size(); ++i) homes[i] = home_of(ids[i]);
  }
  for (int64_t i = 0; i < ids.size(); ++i) Prefetch(homes[i]);
}

inline int64_t IdIndex::FindAtHome(Span<const int64_t> ids, const Bucket* const* homes, int64_t* rows,
                                   int64_t* past) const {
  int64_t num_past = 0;
  for (int64_t i = 0; i < ids.size(); ++i) {
    const Bucket& home = *homes[i];
    const int64_t row_plus_1 = home.RowPlus1(ids[i]);
    rows[i] = row_plus_1 - 1;
    past[num_past] = i;
    if ((row_plus_1 == 0) & home.full()) {
      Prefetch(homes[i] + 1);  // except for the last bucket, whose next is the first
      ++num_past;
    }
  }
  return num_past;
}

template <typename HomeOf>
inline void IdIndex::FindInBlocks(Span<const int64_t> ids, const HomeOf& home_of, Span<int64_t> rows) const {
  const int64_t n = rows.size();
  const Bucket* homes[2][kAhead];
  const auto prefetch_block = [&](int64_t begin) {
    const int64_t count = std::min(kAhead, ids.size() - begin);
    if (count > 0) PrefetchHomes(ids.subspan(begin, count), home_of, homes[begin / kAhead % 2]);
  };
  prefetch_block(0);
  // Ids that may have overflowed from their home bucket. Their next bucket was not prefetched in time, so it
  // is prefetched here and searched after the others.
  int64_t past[kBlock];
  int64_t num_past = 0;
  for (int64_t begin = 0; begin < n; begin += kAhead) {
    prefetch_block(begin + kAhead);
    const int64_t end = std::min(n, begin + kAhead);
    const int64_t more = FindAtHome(ids.subspan(begin, end - begin), homes[begin / kAhead % 2],
                                    rows.data() + begin, past + num_past);
    for (int64_t p = num_past; p < num_past + more; ++p) past[p] += begin;
    num_past += more;
    if (end < n && end % kBlock != 0) continue;
    for (int64_t p = 0; p < num_past; ++p) {
      const int64_t id = ids[past[p]];
      const Array& array = ArrayOf(id);
      const uint64_t end_of_search = array.EndOfSearch(id, array.Next(array.Home(id)));
      rows[past[p]] = array.buckets[end_of_search].RowPlus1(id) - 1;
    }
    num_past = 0;
  }
}

void IdIndex::Find(Span<const int64_t> ids, Span<int64_t> rows) const {
  if (size_ == 0) {
    std::fill(rows.begin(), rows.end(), kAbsent);
    return;
  }
  // Copies, so that the compiler knows that no store changes them.
  const Bucket* const buckets = buckets_.buckets;
  const int shift = buckets_.shift;
  const auto home_of = [=](int64_t id) { return buckets + (Mix64(static_cast<uint64_t>(id)) >> shift); };
  if (!grows()) {
    RunVectorized([&] { FindInBlocks(ids, home_of, rows); });
    return;
  }
  const Bucket* const old = old_.buckets;
  const uint64_t mask = old_.mask;
  const int old_shift = old_.shift;
  const uint64_t first = first_;
  const uint64_t moved = moved_;
  const auto home_of_either = [=](int64_t id) {
    const uint64_t hash = Mix64(static_cast<uint64_t>(id));
    const uint64_t home = hash >> old_shift;
    return ((home - first) & mask) < moved ? buckets + (hash >> shift) : old + home;
  };
  RunVectorized([&] { FindInBlocks(ids, home_of_either, rows); });
}

Status IdIndex::Insert(Span<const int64_t> ids, Span<const int64_t> rows) {
  const int64_t n = ids.size();
  // Doubling keeps the cost of many small insertions linear; Reserve rounds up to a power of two.
  SOK_RETURN_IF_ERROR(Reserve(size_ + n));
  Move(std::max(kMovedAtOnce, kMovedForAnId * n));
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const int64_t ahead = ids[i + kAhead];
      const Array& array = ArrayOf(ahead);
      Prefetch<true>(&array.buckets[array.Home(ahead)]);
    }
    ArrayOf(ids[i]).Append(ids[i], rows[i] + 1);
  }
  size_ += n;
  return OkStatus();
}

bool IdIndex::Erase(int64_t id) {
  const bool erased = size_ > 0 && ArrayOf(id).Erase(id);
  size_ -= erased;
  return erased;
}

void IdIndex::ForEach(FunctionRef<void(int64_t, int64_t)> visit) const {
  for (const Array* const array : {&old_, &buckets_}) {
    for (int64_t i = 0; i < array->size(); ++i) {
      const Bucket& bucket = array->buckets[i];
      for (int k = 0; k < bucket.taken(); ++k) visit(bucket.ids[k], bucket.rows_plus_1[k] - 1);
    }
  }
}

}  // namespace sok
