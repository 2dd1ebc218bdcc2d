#ifndef SOK_CC_CPU_INDEX_ID_INDEX_H_
#define SOK_CC_CPU_INDEX_ID_INDEX_H_

#include <cstdint>
#include <utility>

#include "cc/base/function_ref.h"
#include "cc/base/hash.h"
#include "cc/base/huge_pages.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// A map from 64-bit ids to row numbers. Every int64 value is a legal id.
//
// Layout: 2^k buckets of four ids and their rows, 64 bytes each, filled to at most one half. Zeroed memory is
// an empty index, so a large index costs nothing until it is filled.
//
// An id is stored in its home bucket or, if that is full, in the next bucket with a free place (linear
// probing over buckets). A bucket is one cache line. At half load 4 % of the ids are outside their home
// bucket, and the four ids of a bucket are compared without a branch. Both matter: a cache line that was not
// prefetched in time, or a mispredicted branch while lines are in flight, costs as much as ten lookups. The
// home bucket is the top k bits of Mix64(id), so buckets are in order of hash, and growing or iterating
// streams through memory. Erase moves later ids back instead of leaving a tombstone, so lookups do not slow
// down as ids come and go.
//
// Growth: an index that grows has two arrays of buckets, and the home bucket in the smaller one says which of
// them has an id. Each insertion moves some buckets, in the order of hash, so no insertion waits for all of
// them. It has ended long before the next growth begins.
//
// Thread safety: any number of threads may call const members at the same time; other members need exclusive
// access. Move-only.
class IdIndex {
 public:
  // The row that Find reports for an id that is not in the index.
  static constexpr int64_t kAbsent = -1;

  IdIndex() = default;
  IdIndex(IdIndex&& other) noexcept { *this = static_cast<IdIndex&&>(other); }
  IdIndex& operator=(IdIndex&& other) noexcept;

  int64_t size() const { return size_; }
  int64_t bytes() const { return buckets_.bytes() + old_.bytes(); }

  // Makes room for `n` ids in total, so that inserting up to that many needs no memory. Never shrinks.
  // ResourceExhausted if memory runs out; the index is then unchanged. Takes constant time, unless the last
  // growth goes on.
  Status Reserve(int64_t n);

  // rows[i] = the row of ids[i], or kAbsent. Ids may repeat. rows.size() <= ids.size(): ids beyond
  // rows.size() are only prefetched, for a Find that begins with them. Pass many ids at once: their memory
  // reads overlap, while a single id waits for each of its own.
  void Find(Span<const int64_t> ids, Span<int64_t> rows) const;

  // Adds ids[i] with rows[i] >= 0. The ids are distinct and absent. Grows as needed, at least to twice the
  // size. ResourceExhausted if memory runs out; then no id was added.
  Status Insert(Span<const int64_t> ids, Span<const int64_t> rows);

  // Removes `id`; returns false if it is not there. Keeps the memory.
  bool Erase(int64_t id);

  // Calls visit(id, row) for every id, in an order that depends on the ids, the capacity, and the order in
  // which ids were inserted and erased. `visit` must not change the index.
  void ForEach(FunctionRef<void(int64_t id, int64_t row)> visit) const;

 private:
  static constexpr int kPlaces = 4;
  // Occupied places come first.
  struct Bucket {
    int64_t ids[kPlaces];
    int64_t rows_plus_1[kPlaces];  // 0: the place is free, and its id is 0

    bool full() const { return rows_plus_1[kPlaces - 1] != 0; }
    // The row + 1 of `id`, or 0 if it is not in this bucket. Free of branches: ids are distinct, and a free
    // place, which looks like id 0, adds 0.
    int64_t RowPlus1(int64_t id) const {
      int64_t row_plus_1 = 0;
      for (int k = 0; k < kPlaces; ++k) row_plus_1 |= rows_plus_1[k] & -static_cast<int64_t>(ids[k] == id);
      return row_plus_1;
    }
    int taken() const;
    // The place of `id`, which must be in this bucket.
    int PlaceOf(int64_t id) const;
    void Append(int64_t id, int64_t row_plus_1);
    void Remove(int place);
  };
  static_assert(sizeof(Bucket) == 64, "a bucket is a cache line");

  // Buckets with linear probing.
  struct Array {
    PageBuffer memory;
    Bucket* buckets = nullptr;
    uint64_t mask = 0;  // the number of buckets, a power of two, less one
    int shift = 0;      // 64 less the logarithm of that number

    int64_t bytes() const { return memory.size(); }
    int64_t size() const { return bytes() / static_cast<int64_t>(sizeof(Bucket)); }
    uint64_t Home(int64_t id) const { return Mix64(static_cast<uint64_t>(id)) >> shift; }
    uint64_t Next(uint64_t bucket) const { return (bucket + 1) & mask; }
    // The bucket at which the search for `id` ends: the one that holds it, or the first that is not full.
    uint64_t EndOfSearch(int64_t id, uint64_t home) const;
    // A bucket into which no id has overflowed.
    uint64_t BeginOfRun() const;
    void Append(int64_t id, int64_t row_plus_1);
    bool Erase(int64_t id);
    // Moves an id that overflowed past the bucket `hole` back into it. Returns the bucket from which the id
    // came, or `hole` itself if there is no such id.
    uint64_t MoveInto(uint64_t hole);
  };

  bool grows() const { return old_.buckets != nullptr; }
  // Whether ids with this home in old_ are in buckets_.
  bool IsMoved(uint64_t old_home) const { return ((old_home - first_) & old_.mask) < moved_; }
  const Array& ArrayOf(int64_t id) const { return grows() && !IsMoved(old_.Home(id)) ? old_ : buckets_; }
  Array& ArrayOf(int64_t id) { return const_cast<Array&>(std::as_const(*this).ArrayOf(id)); }
  // Moves at least this many buckets of old_, or all that are left.
  void Move(int64_t buckets);
  // Find for a non-empty index, in blocks of ids. `home_of` gives an id's home bucket.
  template <typename HomeOf>
  void FindInBlocks(Span<const int64_t> ids, const HomeOf& home_of, Span<int64_t> rows) const;
  // Prefetches the home buckets of a block's ids and stores where they are.
  template <typename HomeOf>
  static void PrefetchHomes(Span<const int64_t> ids, const HomeOf& home_of, const Bucket** homes);
  // Searches the home bucket of each id. Positions of ids that may be in a later bucket go to `past`, which
  // has at least ids.size() places; the next bucket of each is prefetched. Returns their number.
  int64_t FindAtHome(Span<const int64_t> ids, const Bucket* const* homes, int64_t* rows, int64_t* past) const;

  Array buckets_;
  // The smaller array while the index grows. Of its buckets, the `moved_` ones from `first_` on are empty or
  // have ids that overflowed into them since.
  Array old_;
  uint64_t first_ = 0;
  uint64_t moved_ = 0;
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_CPU_INDEX_ID_INDEX_H_
