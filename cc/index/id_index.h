#ifndef SOK_CC_INDEX_ID_INDEX_H_
#define SOK_CC_INDEX_ID_INDEX_H_

#include <cstdint>

#include "cc/base/function_ref.h"
#include "cc/base/hash.h"
#include "cc/base/huge_pages.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// A map from 64-bit ids to row numbers. Every int64 value is a legal id.
//
// Memory: 2^k buckets of four ids and their rows, 64 bytes each, at most half of the places taken. Zeroed
// memory is an empty index, so a large one costs nothing until it is filled.
// An id lives in its home bucket or, when that is full, in the next one that is not (linear probing over
// buckets). A bucket is a cache line: at half load 4 ids of 100 are in another one than their home, and
// within one all four are compared without a branch. Both matter: a line that was not asked for in time, or a
// wrong guess while lines are on their way, costs a lookup as much as ten others. The home bucket is the top
// k bits of Mix64(id): buckets in order of position are in order of hash, and growing or walking the index
// streams through memory. Erasing moves later ids back instead of leaving a mark, so lookups do not get
// slower as ids come and go.
//
// Thread safety: any number of threads may call const members at the same time; other members need the index
// for themselves. Move-only.
class IdIndex {
 public:
  // What Find gives for an id that is not in the index.
  static constexpr int64_t kAbsent = -1;

  IdIndex() = default;
  IdIndex(IdIndex&& other) noexcept { *this = static_cast<IdIndex&&>(other); }
  IdIndex& operator=(IdIndex&& other) noexcept;

  int64_t size() const { return size_; }
  int64_t bytes() const { return num_buckets_ * static_cast<int64_t>(sizeof(Bucket)); }

  // Makes room for `n` ids in all, so that inserting up to that many moves nothing. Never shrinks.
  // ResourceExhausted where memory does not suffice; the index is then as it was. Linear in size().
  Status Reserve(int64_t n);

  // rows[i] = the row of ids[i], or kAbsent. Ids may repeat. rows.size() <= ids.size(): memory is asked for
  // on behalf of ids beyond, so that a Find that begins with them need not wait. Work on many ids at once:
  // their memory reads overlap, and one id alone waits for all of its own.
  void Find(Span<const int64_t> ids, Span<int64_t> rows) const;

  // Adds ids[i] with rows[i] >= 0. The ids are distinct and absent. Grows as needed, to twice the size at
  // least; ResourceExhausted where memory does not suffice, and then none was added.
  Status Insert(Span<const int64_t> ids, Span<const int64_t> rows);

  // Takes `id` out; false where it is not there. The memory is kept.
  bool Erase(int64_t id);

  // Calls visit(id, row) for every id, in an order that depends on ids and capacity alone. `visit` must not
  // change the index.
  void ForEach(FunctionRef<void(int64_t id, int64_t row)> visit) const;

  // Takes out every id and gives the memory back.
  void Clear() { *this = IdIndex(); }

 private:
  static constexpr int kPlaces = 4;
  // The places taken come first.
  struct Bucket {
    int64_t ids[kPlaces];
    int64_t rows_plus_1[kPlaces];  // 0: the place is free, and its id is 0

    bool full() const { return rows_plus_1[kPlaces - 1] != 0; }
    // The row + 1 of `id`, 0 where it is not here. Without branches: ids are distinct, and a free place that
    // looks like id 0 adds nothing.
    int64_t RowPlus1(int64_t id) const {
      int64_t row_plus_1 = 0;
      for (int k = 0; k < kPlaces; ++k) row_plus_1 |= rows_plus_1[k] & -static_cast<int64_t>(ids[k] == id);
      return row_plus_1;
    }
    int taken() const;
    // Where `id`, which is here, is.
    int PlaceOf(int64_t id) const;
    void Append(int64_t id, int64_t row_plus_1);
    void Remove(int place);
  };
  static_assert(sizeof(Bucket) == 64, "a bucket is a cache line");

  uint64_t Home(int64_t id) const { return Mix64(static_cast<uint64_t>(id)) >> shift_; }
  uint64_t Next(uint64_t bucket) const { return (bucket + 1) & (static_cast<uint64_t>(num_buckets_) - 1); }
  // The bucket in which the search for `id` ends: the one that has it, or the first that is not full.
  uint64_t EndOfSearch(int64_t id, uint64_t home) const;
  // Find in an index that is not empty, in blocks of ids.
  void FindInBlocks(Span<const int64_t> ids, Span<int64_t> rows) const;
  // Asks for the home buckets of a block's ids, which become homes[i].
  void AskFor(Span<const int64_t> ids, uint64_t* homes) const;
  // Looks for each id in its home bucket. The positions of those that may be in a later one go to `past`, of
  // at least ids.size() places; returns their number. Of these, the next bucket is asked for.
  int64_t FindAtHome(Span<const int64_t> ids, const uint64_t* homes, int64_t* rows, int64_t* past) const;
  void Append(int64_t id, int64_t row_plus_1);
  // Moves an id that stands behind the bucket `hole`, and was kept from it by its being full, into it.
  // Returns where the id was; `hole` itself where there is none.
  uint64_t MoveInto(uint64_t hole);
  Status Rehash(int64_t num_buckets);

  PageBuffer memory_;
  Bucket* buckets_ = nullptr;
  int64_t num_buckets_ = 0;  // 0 or a power of two
  int shift_ = 0;            // 64 - log2(num_buckets_)
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_INDEX_ID_INDEX_H_
