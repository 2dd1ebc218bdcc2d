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
// There are five buckets for eight ids: 40 bytes for each.
constexpr int64_t kIdsOfFiveBuckets = 8;

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
  memory_ = std::move(other.memory_);
  buckets_ = std::exchange(other.buckets_, nullptr);
  homes_ = std::exchange(other.homes_, Homes());
  size_ = std::exchange(other.size_, 0);
  return *this;
}

int64_t IdIndex::BucketsFor(int64_t ids) {
  return std::max(kMinBuckets, (5 * ids + kIdsOfFiveBuckets - 1) / kIdsOfFiveBuckets);
}

Status IdIndex::Reserve(int64_t n) {
  if (n <= size_) return OkStatus();
  if (n > kMaxIds) return ResourceExhausted("cannot make room for ", n, " ids");
  const int64_t buckets = std::max(num_buckets(), BucketsFor(n));
  // Ids that overflow behind the last bucket fill all before the last of theirs, and a search ends at one
  // that is not full.
  const int64_t bytes = (buckets + n / kPlaces + 2) * static_cast<int64_t>(sizeof(Bucket));
  if (bytes > memory_.size()) {
    const Status status = memory_.Grow(std::max(bytes, 2 * memory_.size()));
    if (!status.ok()) return ResourceExhausted("an index with room for ", n, " ids: ", status.message());
    buckets_ = static_cast<Bucket*>(memory_.data());
  }
  if (size_ == 0) SetBuckets(buckets);
  return OkStatus();
}

void IdIndex::SetBuckets(int64_t buckets) {
  homes_.buckets = static_cast<uint64_t>(buckets);
  homes_.half = uint64_t{1} << (63 - __builtin_clzll(homes_.buckets));
}

Status IdIndex::AddBuckets(int64_t buckets) {
  return WithinMemory([&] {
    std::vector<Bucket> run;
    while (num_buckets() < buckets) AddBucket(&run);
    return OkStatus();
  });
}

void IdIndex::AddBucket(std::vector<Bucket>* run) {
  const uint64_t from = homes_.buckets - homes_.half;
  // The ids with this home are here and, behind a full bucket, in the next one.
  uint64_t end = from + 1;
  while (buckets_[end - 1].full()) ++end;
  const Bucket first = buckets_[from];
  run->assign(buckets_ + from + 1, buckets_ + end);
  std::fill(buckets_ + from, buckets_ + end, Bucket());
  SetBuckets(num_buckets() + 1);
  const auto append = [this](const Bucket& bucket) {
    for (int k = 0; k < kPlaces && bucket.rows_plus_1[k] != 0; ++k) {
      Append(bucket.ids[k], bucket.rows_plus_1[k]);
    }
  };
  append(first);
  for (const Bucket& bucket : *run) append(bucket);
}

uint64_t IdIndex::EndOfSearch(int64_t id, uint64_t home) const {
  uint64_t at = home;
  while (buckets_[at].RowPlus1(id) == 0 && buckets_[at].full()) ++at;
  return at;
}

void IdIndex::Append(int64_t id, int64_t row_plus_1) {
  uint64_t at = homes_.Of(id);
  while (buckets_[at].full()) ++at;
  buckets_[at].Append(id, row_plus_1);
}

bool IdIndex::Erase(int64_t id) {
  if (size_ == 0) return false;
  uint64_t hole = EndOfSearch(id, homes_.Of(id));
  if (buckets_[hole].RowPlus1(id) == 0) return false;
  // A search continues past a bucket only if it is full. A bucket with a new free place must therefore take
  // back an id that overflowed from it; the place of that id is the next hole.
  bool was_full = buckets_[hole].full();
  buckets_[hole].Remove(buckets_[hole].PlaceOf(id));
  while (was_full) {
    const uint64_t next = MoveInto(hole);
    if (next == hole) break;
    was_full = buckets_[next].taken() == kPlaces - 1;
    hole = next;
  }
  --size_;
  return true;
}

uint64_t IdIndex::MoveInto(uint64_t hole) {
  for (uint64_t at = hole + 1;; ++at) {
    Bucket& bucket = buckets_[at];
    const bool full = bucket.full();
    for (int k = 0; k < bucket.taken(); ++k) {
      if (homes_.Of(bucket.ids[k]) > hole) continue;
      buckets_[hole].Append(bucket.ids[k], bucket.rows_plus_1[k]);
      bucket.Remove(k);
      return at;
    }
    if (!full) return hole;
  }
}

inline void IdIndex::PrefetchHomes(Span<const int64_t> ids, const Bucket** at) const {
  // Copies, so that the compiler knows that no store changes them.
  const Bucket* const buckets = buckets_;
  const Homes homes = homes_;
  if (ids.size() == kAhead) {
    for (int64_t i = 0; i < kAhead; ++i) at[i] = buckets + homes.Of(ids[i]);
  } else {
    for (int64_t i = 0; i < ids.size(); ++i) at[i] = buckets + homes.Of(ids[i]);
  }
  for (int64_t i = 0; i < ids.size(); ++i) Prefetch(at[i]);
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
      Prefetch(homes[i] + 1);
      ++num_past;
    }
  }
  return num_past;
}

inline void IdIndex::FindInBlocks(Span<const int64_t> ids, Span<int64_t> rows) const {
  const int64_t n = rows.size();
  const Bucket* homes[2][kAhead];
  const auto prefetch_block = [&](int64_t begin) {
    const int64_t count = std::min(kAhead, ids.size() - begin);
    if (count > 0) PrefetchHomes(ids.subspan(begin, count), homes[begin / kAhead % 2]);
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
      rows[past[p]] = buckets_[EndOfSearch(id, homes_.Of(id) + 1)].RowPlus1(id) - 1;
    }
    num_past = 0;
  }
}

void IdIndex::Find(Span<const int64_t> ids, Span<int64_t> rows) const {
  if (size_ == 0) {
    std::fill(rows.begin(), rows.end(), kAbsent);
    return;
  }
  RunVectorized([&] { FindInBlocks(ids, rows); });
}

Status IdIndex::Insert(Span<const int64_t> ids, Span<const int64_t> rows) {
  const int64_t n = ids.size();
  if (n == 0) return OkStatus();
  SOK_RETURN_IF_ERROR(Reserve(size_ + n));
  SOK_RETURN_IF_ERROR(AddBuckets(BucketsFor(size_ + n)));
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) Prefetch<true>(&buckets_[homes_.Of(ids[i + kAhead])]);
    Append(ids[i], rows[i] + 1);
  }
  size_ += n;
  return OkStatus();
}

void IdIndex::ForEach(FunctionRef<void(int64_t, int64_t)> visit) const {
  for (int64_t left = size_, at = 0; left > 0; ++at) {
    const Bucket& bucket = buckets_[at];
    for (int k = 0; k < bucket.taken(); ++k) visit(bucket.ids[k], bucket.rows_plus_1[k] - 1);
    left -= bucket.taken();
  }
}

}  // namespace sok
