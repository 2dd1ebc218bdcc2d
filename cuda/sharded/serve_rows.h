// The part of a lookup over ranks on the owners of the rows.
#ifndef SOK_CUDA_SHARDED_SERVE_ROWS_H_
#define SOK_CUDA_SHARDED_SERVE_ROWS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/messages/agreement.h"
#include "cc/messages/message.h"
#include "cc/messages/request.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/merged_rows.h"
#include "cuda/pooling/pool.h"
#include "cuda/sharded/messages.h"
#include "cuda/sharded/sharded_group.h"
#include "cuda/table/device_table.h"

namespace sok {

// The requests that arrived at an owner: the part that the host reads.

// A rank's request for one table. The arrays are on the device, in the message.
struct ArrivedRequest {
  RequestEntry entry;
  const int64_t* ids = nullptr;
  const int32_t* lengths = nullptr;
  const int32_t* counts = nullptr;
};

class ArrivedRequests {
 public:
  // Waits for the device once, and once more if a message has an error. Every owner that gets the same
  // messages returns the same error, whether a message carries it or is itself malformed. Does not check
  // lengths and counts, nor that they are present if the exchange mode needs them.
  Status Read(GpuCall* call, GpuScratch* scratch, const Inbox& inbox, int64_t num_tables);

  int ranks() const { return static_cast<int>(trains_.size()); }
  bool trains(int r) const { return trains_[static_cast<size_t>(r)] != 0; }
  const ArrivedRequest& of(int r, int64_t t) const { return of_[static_cast<size_t>(r)][t]; }
  // The error of a request whose lengths or counts are wrong.
  Status Damaged(int r) const;

 private:
  Status ReadMessage(GpuCall* call, RoundTrip* round_trip, const MessageHeads& heads, int r,
                     int64_t num_tables);
  Status ReadRequest(Span<const int64_t> head, int r, int64_t num_tables);

  const Inbox* inbox_ = nullptr;
  std::vector<std::vector<ArrivedRequest>> of_;  // by rank, by table
  std::vector<uint8_t> trains_;                  // by rank
};

// Engine::Serve. `memory` is the engine's, for what the group keeps. Waits for the device twice: for the
// headers of the requests, and to learn which rows are missing. An error costs one more wait. Holds the
// tables' locks from the search on.
class ServeRows {
 public:
  ServeRows(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
            Span<const ExchangeMode> modes, GpuServedGroup* served, GpuScratch* scratch);

  Status Serve(const Inbox& requests, AllocateWords allocate);

 private:
  // The ids of the ranks that train, or of those that only read.
  struct Side {
    ServedIds* ids;
    bool training;
  };

  // Reads the requests. After an error *refusals has the answer for each rank.
  Status Accept(const Inbox& requests, std::vector<Refusal>* refusals);
  Status FindAllRows();
  // Lays out the ids of a side, from what the host knows about them.
  Status Lay(const Side& side) const;
  Status CheckIds(const Side& side) const;
  // Enqueue work on the stream: ids, distinct ids, their counts and sums.
  Status EnqueueIds(const Side& side, int64_t* words);
  Status CopyIds(const Side& side, int32_t* lengths, int32_t* counts);
  Status EnqueueCounts(const Side& side, const int64_t* ids_begin, const int32_t* ranks, int32_t* counts);
  Status CheckDamage(const int64_t* words);
  Status TakeTrained(MergedRows* rows, const int64_t* words);
  Status TakeRead(MergedRows* rows, const int64_t* words);

  Status WriteErrors(const std::vector<Refusal>& refusals, AllocateWords allocate);
  Status WriteRows(AllocateWords allocate);
  // The rows that rank `r` gets of table `t`. With replicas a rank gets rows from itself only.
  int64_t RowsFor(int r, int t) const;
  // What they take in the answer, in units of a float.
  int64_t FloatsFor(int r, int t) const;
  LookupOutput AnswerTo(int r, int t, float* out) const;

  bool counts(int t) const { return tables_[t]->counts_lookups() && served_.modes[t] == ExchangeMode::kRows; }
  bool any_reads() const;
  int num_tables() const { return static_cast<int>(tables_.size()); }
  size_t part(int t, int r) const { return static_cast<size_t>(t) * served_.ranks + r; }
  size_t parts() const { return part(num_tables(), 0); }

  GpuCall& call_;
  DeviceAllocator* memory_;
  std::vector<DeviceTable*> tables_;
  GpuServedGroup& served_;
  GpuScratch& scratch_;
  ArrivedRequests requests_;
  ServedIds read_;           // the ids of the ranks that only read
  bool is_damaged_ = false;  // a request: the error names its rank
};

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_SERVE_ROWS_H_
