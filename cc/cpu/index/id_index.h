#ifndef SOK_CC_CPU_INDEX_ID_INDEX_H_
#define SOK_CC_CPU_INDEX_ID_INDEX_H_

#include <cstdint>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/hash.h"
#include "cc/base/huge_pages.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// A map from 64-bit ids to row numbers. Every int64 value is a legal id.
//
// Layout: buckets of four ids and their rows, 64 bytes each, filled to two fifths. Zeroed memory is an empty
// index, so a large index costs nothing until it is filled.
//
// An id is stored in its home bucket or, if that is full, in the next bucket with a free place (linear
// probing over buckets). A bucket is one cache line. 2 to 4 % of the ids are outside their home bucket, and
// the four ids of a bucket are compared without a branch. Both matter: a cache line that was not prefetched
// in time, or a mispredicted branch while lines are in flight, costs as much as ten lookups. Erase moves
// later ids back instead of leaving a tombstone, so lookups do not slow down as ids come and go.
//
// Growth: linear hashing (Litwin, "Linear hashing: a new tool for file and table addressing", 1980). New ids
// add buckets at the end, in proportion to their number; each new bucket takes its ids from one other, in
// turn. So no insertion waits for more, and the memory is always in the same proportion to the ids. Ids of
// the last bucket overflow behind it, into memory that later becomes buckets: searches do not wrap around.
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
  int64_t bytes() const { return num_buckets() * static_cast<int64_t>(sizeof(Bucket)); }

  // Gets addresses for `n` ids in total, so that inserting up to that many succeeds. Never shrinks.
  // ResourceExhausted if memory runs out; the index is then unchanged. An index without ids gets all its
  // buckets at once, none of which has to be filled again.
  Status Reserve(int64_t n);

  // rows[i] = the row of ids[i], or kAbsent. Ids may repeat. rows.size() <= ids.size(): ids beyond
  // rows.size() are only prefetched, for a Find that begins with them. Pass many ids at once: their memory
  // reads overlap, while a single id waits for each of its own.
  void Find(Span<const int64_t> ids, Span<int64_t> rows) const;

  // Adds ids[i] with rows[i] >= 0. The ids are distinct and absent. ResourceExhausted if memory runs out;
  // then no id was added.
  Status Insert(Span<const int64_t> ids, Span<const int64_t> rows);

  // Removes `id`; returns false if it is not there. Keeps the memory.
  bool Erase(int64_t id);

  // Calls visit(id, row) for every id, in an order that depends on the ids, the buckets, and the order in
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

  // The home buckets of ids: the last bits of the hash, one fewer where there is no such bucket yet.
  struct Homes {
    uint64_t buckets = 0;
    uint64_t half = 0;  // the largest power of two that is not above it

    uint64_t Of(int64_t id) const {
      const uint64_t home = Mix64(static_cast<uint64_t>(id)) & (2 * half - 1);
      return home < buckets ? home : home - half;
    }
  };

  static int64_t BucketsFor(int64_t ids);
  int64_t num_buckets() const { return static_cast<int64_t>(homes_.buckets); }
  void SetBuckets(int64_t buckets);
  // Adds buckets up to this number, for which Reserve got addresses. ResourceExhausted if memory runs out;
  // the index then has fewer.
  Status AddBuckets(int64_t buckets);
  // Adds a bucket. *run is working memory.
  void AddBucket(std::vector<Bucket>* run);
  // The bucket at which the search for `id` ends: the one that holds it, or the first that is not full.
  uint64_t EndOfSearch(int64_t id, uint64_t home) const;
  void Append(int64_t id, int64_t row_plus_1);
  // Moves an id that overflowed past the bucket `hole` back into it. Returns the bucket from which the id
  // came, or `hole` itself if there is no such id.
  uint64_t MoveInto(uint64_t hole);
  // Find for a non-empty index, in blocks of ids.
  void FindInBlocks(Span<const int64_t> ids, Span<int64_t> rows) const;
  // Prefetches the home buckets of a block's ids and stores where they are.
  void PrefetchHomes(Span<const int64_t> ids, const Bucket** at) const;
  // Searches the home bucket of each id. Positions of ids that may be in a later bucket go to `past`, which
  // has at least ids.size() places; the next bucket of each is prefetched. Returns their number.
  int64_t FindAtHome(Span<const int64_t> ids, const Bucket* const* homes, int64_t* rows, int64_t* past) const;

  // Longer than the buckets: the ones behind the last take what overflows.
  PageBuffer memory_;
  Bucket* buckets_ = nullptr;
  Homes homes_;
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_CPU_INDEX_ID_INDEX_H_
