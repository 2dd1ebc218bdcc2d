#include "cuda/sharded/serve_rows.h"

#include <algorithm>
#include <limits>

#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cc/messages/message.h"
#include "cuda/base/device_buffer.h"
#include "cuda/dedup/dedup.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_merge.h"
#include "cuda/pooling/pool.h"
#include "cuda/sharded/message_kernels.h"
#include "cuda/sharded/messages.h"
#include "cuda/sharded/served_ids.h"
#include "cuda/sharded/sharded_group.h"

namespace sok {

Status ArrivedRequests::Read(GpuCall* call, GpuScratch* scratch, const Inbox& inbox, int64_t num_tables) {
  inbox_ = &inbox;
  of_.assign(static_cast<size_t>(inbox.size()), {});
  trains_.assign(static_cast<size_t>(inbox.size()), 0);
  MessageHeads heads;
  SOK_RETURN_IF_ERROR(heads.Fetch(call, &scratch->upload, &scratch->round_trip, inbox,
                                  kHeaderWords + kRequestEntryWords * num_tables));
  for (int r = 0; r < ranks(); ++r) {
    const Status status = ReadMessage(call, &scratch->round_trip, heads, r, num_tables);
    if (!status.ok()) return inbox.ErrorOf(r, status);
  }
  return OkStatus();
}

Status ArrivedRequests::ReadMessage(GpuCall* call, RoundTrip* round_trip, const MessageHeads& heads, int r,
                                    int64_t num_tables) {
  MessageHeader header;
  SOK_RETURN_IF_ERROR(heads.Read(call, round_trip, r, MessageKind::kRequest, &header));
  SOK_RETURN_IF_ERROR(header.status);
  trains_[static_cast<size_t>(r)] = header.token != 0 ? 1 : 0;
  return ReadRequest(heads.words(r), r, num_tables);
}

Status ArrivedRequests::Damaged(int r) const {
  return inbox_->ErrorOf(r, DamagedRequest((*inbox_)[r].size() - kHeaderWords,
                                           static_cast<int64_t>(of_[static_cast<size_t>(r)].size())));
}

Status ArrivedRequests::ReadRequest(Span<const int64_t> head, int r, int64_t num_tables) {
  const Span<const int64_t>& message = (*inbox_)[r];
  const int64_t entries = kHeaderWords + kRequestEntryWords * num_tables;
  const Status damaged = DamagedRequest(message.size() - kHeaderWords, num_tables);
  if (message.size() < entries) return damaged;
  const int64_t* next = message.data() + entries;
  int64_t left = message.size() - entries;
  for (int64_t t = 0; t < num_tables; ++t) {
    ArrivedRequest request;
    request.entry = ReadEntry(head.data() + kHeaderWords + kRequestEntryWords * t);
    const RequestEntry& entry = request.entry;
    if (!entry.Fits(left)) return damaged;
    request.ids = next;
    request.lengths = reinterpret_cast<const int32_t*>(next + entry.ids);
    const int64_t length_words = WordsOf(entry.lengths * static_cast<int64_t>(sizeof(int32_t)));
    request.counts = reinterpret_cast<const int32_t*>(next + entry.ids + length_words);
    next += entry.data_words();
    left -= entry.data_words();
    of_[static_cast<size_t>(r)].push_back(request);
  }
  return left == 0 ? OkStatus() : damaged;
}

namespace {

// The words of the report: one, the lowest rank whose request is damaged.
constexpr int64_t kReportWords = 1;

}  // namespace

ServeRows::ServeRows(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
                     Span<const ExchangeMode> modes, GpuServedGroup* served, GpuScratch* scratch)
    : call_(*call),
      memory_(memory),
      tables_(tables.begin(), tables.end()),
      served_(*served),
      scratch_(*scratch) {
  served_.rank = tables[0]->options().rank;
  served_.modes.assign(modes.begin(), modes.end());
  served_.dims.clear();
  served_.types.clear();
  served_.counts.clear();
  for (const DeviceTable* table : tables_) {
    const size_t t = served_.dims.size();
    served_.dims.push_back(table->options().dim);
    served_.types.push_back(AnswerType(table->options().record.weights, served_.modes[t]));
    served_.counts.push_back(table->lookup_counts());
  }
}

Status ServeRows::Serve(const Inbox& requests, AllocateWords allocate) {
  served_.token = NextToken();
  served_.ranks = requests.size();
  served_.own = requests.own();
  served_.is_served = false;
  std::vector<Refusal> refusals;
  if (!Accept(requests, &refusals).ok()) return WriteErrors(refusals, allocate);

  TablesAtWork at_work(call_.stream(), &call_.executor(), tables_);
  const Status found = WithinMemory([&] {
    SOK_RETURN_IF_ERROR(at_work.Enter());
    return FindAllRows();
  });
  if (!found.ok()) {
    const Status status = is_damaged_ ? found : OnRank(served_.rank, found);
    return WriteErrors(std::vector<Refusal>(requests.size(), Refusal{status}), allocate);
  }
  SOK_RETURN_IF_ERROR(WriteRows(allocate));
  served_.is_served = true;
  return OkStatus();
}

Status ServeRows::Accept(const Inbox& requests, std::vector<Refusal>* refusals) {
  const Status read = WithinMemory([&] { return requests_.Read(&call_, &scratch_, requests, num_tables()); });
  refusals->assign(requests.size(), Refusal{read});
  SOK_RETURN_IF_ERROR(read);
  SOK_RETURN_IF_ERROR(CheckAgreement(
      DefinitionsOf(tables_, served_.modes), served_.rank, served_.ranks,
      [&](int r, int64_t t) { return requests_.of(r, t).entry.fingerprints; }, refusals));
  const Status fits =
      CheckModes(requests, served_.modes, [&](int r, int64_t t) { return requests_.of(r, t).entry; });
  refusals->assign(requests.size(), Refusal{fits});
  return fits;
}

bool ServeRows::any_reads() const {
  for (int r = 0; r < served_.ranks; ++r) {
    if (!requests_.trains(r)) return true;
  }
  return false;
}

Status ServeRows::FindAllRows() {
  const Side trained = {&served_.trained, true};
  const Side read = {&read_, false};
  SOK_RETURN_IF_ERROR(Lay(trained));
  SOK_RETURN_IF_ERROR(Lay(read));
  MergedRows trained_rows(&call_, memory_, tables_, &served_.trained.merged, &scratch_);
  MergedRows read_rows(&call_, memory_, tables_, &read_.merged, &scratch_);
  const int64_t merge_words = LookupWords(nullptr, kReportWords, num_tables()).merge_size();
  const int64_t words = merge_words + trained_rows.find_words();
  const int64_t all_words = words + (any_reads() ? merge_words + read_rows.find_words() : 0);
  SOK_RETURN_IF_ERROR(served_.word_memory.Resize(call_.stream(), memory_, all_words));
  int64_t* const device_words = served_.word_memory.data();
  // The numbers of absent ids that a search leaves in the scratch are those of the ids that are trained.
  if (any_reads()) {
    SOK_RETURN_IF_ERROR(EnqueueIds(read, device_words + words));
    SOK_RETURN_IF_ERROR(read_rows.Enqueue());
  }
  SOK_RETURN_IF_ERROR(EnqueueIds(trained, device_words));
  SOK_RETURN_IF_ERROR(trained_rows.Enqueue());
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched,
                       scratch_.round_trip.Fetch(call_.stream(), device_words, all_words));
  // Copied, because an error makes the next call fetch more.
  const std::vector<int64_t> host_words(fetched, fetched + all_words);
  SOK_RETURN_IF_ERROR(CheckDamage(host_words.data()));
  if (any_reads()) SOK_RETURN_IF_ERROR(CheckDamage(host_words.data() + words));
  SOK_RETURN_IF_ERROR(TakeTrained(&trained_rows, host_words.data()));
  return any_reads() ? TakeRead(&read_rows, host_words.data() + words) : OkStatus();
}

Status ServeRows::Lay(const Side& side) const {
  ServedIds& ids = *side.ids;
  ids.ids_begin.assign(1, 0);
  ids.sum_begin.assign(1, 0);
  ids.merged.training = side.training;
  ids.merged.tables.assign(tables_.size(), TableOfPlan());
  ids.merged.occurrence_begin.assign(1, 0);
  for (int t = 0; t < num_tables(); ++t) {
    for (int r = 0; r < served_.ranks; ++r) {
      const RequestEntry& entry = requests_.of(r, t).entry;
      const bool is_here = requests_.trains(r) == side.training;
      const bool sums = served_.modes[t] == ExchangeMode::kSums;
      ids.ids_begin.push_back(ids.ids_begin.back() + (is_here ? entry.ids : 0));
      ids.sum_begin.push_back(ids.sum_begin.back() + (is_here && sums ? entry.lengths : 0));
    }
    ids.merged.occurrence_begin.push_back(ids.ids_begin.back());
  }
  ids.merged.unique_count = ids.merged.occurrences();
  return CheckIds(side);
}

Status ServeRows::CheckIds(const Side& side) const {
  const MergedGroup& merged = side.ids->merged;
  int largest = 0;
  for (int t = 0; t < num_tables(); ++t) {
    if (merged.occurrences(t) > merged.occurrences(largest)) largest = t;
    if (!side.training || !counts(t)) continue;
    int64_t counts = 0;
    for (int r = 0; r < served_.ranks; ++r) {
      if (requests_.trains(r)) counts += requests_.of(r, t).entry.counts;
    }
    if (counts != merged.occurrences(t)) return WrongCounts(counts, merged.occurrences(t));
  }
  // The offsets of sums also have an end for each part.
  const int64_t most = std::numeric_limits<int32_t>::max() - static_cast<int64_t>(parts());
  if (merged.occurrences() <= most) return OkStatus();
  return TooManyIds(tables_[largest]->options().name, merged.occurrences());
}

Status ServeRows::EnqueueIds(const Side& side, int64_t* words) {
  const cudaStream_t stream = call_.stream();
  ServedIds& ids = *side.ids;
  MergedGroup& merged = ids.merged;
  const int64_t n = merged.occurrences();
  merged.words = LookupWords(words, kReportWords, num_tables());
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(words, 0xff, sizeof(int64_t), stream),
                           "cannot clear a word on the device");
  SOK_RETURN_IF_ERROR(ids.ids.Resize(stream, memory_, n));
  SOK_RETURN_IF_ERROR(merged.inverse.Resize(stream, memory_, n));
  SOK_RETURN_IF_ERROR(merged.positions.Resize(stream, memory_, n));
  SOK_RETURN_IF_ERROR(merged.keys.Resize(stream, memory_, n));
  const int64_t num_sums = ids.sum_begin.back();
  SOK_ASSIGN_OR_RETURN(auto numbers, DeviceBuffer<int32_t>::Allocate(call_.scratch(), stream, num_sums + n));
  int32_t* const lengths = numbers.data();
  int32_t* const counts = lengths + num_sums;
  SOK_RETURN_IF_ERROR(CopyIds(side, lengths, counts));

  std::vector<int32_t> ranks;
  for (size_t q = 0; q < parts(); ++q) ranks.push_back(static_cast<int32_t>(q) % served_.ranks);
  const int64_t* table_begin = nullptr;
  const int64_t* ids_begin = nullptr;
  const int32_t* device_ranks = nullptr;
  ServedSums sums;
  scratch_.upload.Add(Span<const int64_t>(merged.occurrence_begin), &table_begin);
  scratch_.upload.Add(Span<const int64_t>(ids.ids_begin), &ids_begin);
  scratch_.upload.Add(Span<const int64_t>(ids.sum_begin), &sums.begin);
  scratch_.upload.Add(Span<const int32_t>(ranks), &device_ranks);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, scratch_.upload.Send(stream, call_.scratch()));

  UniqueIds unique;
  unique.begin = merged.words.unique_begin();
  unique.inverse = merged.inverse.data();
  unique.position = merged.positions.data();
  unique.keys = merged.keys.data();
  SOK_RETURN_IF_ERROR(
      Dedup(stream, call_.scratch(), {ids.ids.data(), table_begin, num_tables(), n, nullptr}, unique));
  SOK_RETURN_IF_ERROR(EnqueueCounts(side, ids_begin, device_ranks, counts));
  if (num_sums == 0) return OkStatus();
  sums.parts = static_cast<int>(parts());
  sums.ids_begin = ids_begin;
  sums.ranks = device_ranks;
  sums.count = num_sums;
  sums.lengths = lengths;
  SOK_RETURN_IF_ERROR(ids.sum_offsets.Resize(stream, memory_, num_sums + static_cast<int64_t>(parts())));
  return FindServedSums(stream, call_.scratch(), sums, ids.sum_offsets.data(),
                        reinterpret_cast<uint64_t*>(words));
}

// counts[p] of occurrence p: 1 if its rank sent none.
Status ServeRows::CopyIds(const Side& side, int32_t* lengths, int32_t* all_counts) {
  ServedIds& ids = *side.ids;
  std::vector<CopiedWords> words;
  std::vector<CopiedNumbers> numbers;
  for (int t = 0; t < num_tables(); ++t) {
    for (int r = 0; r < served_.ranks; ++r) {
      if (requests_.trains(r) != side.training) continue;
      const ArrivedRequest& request = requests_.of(r, t);
      const int64_t first = ids.ids_begin[part(t, r)];
      const int64_t num_ids = request.entry.ids;
      words.push_back({request.ids, ids.ids.data() + first, num_ids, num_ids});
      const int64_t num_sums = ids.num_sums(part(t, r));
      numbers.push_back({request.lengths, lengths + ids.sum_begin[part(t, r)], num_sums, num_sums});
      if (!side.training || !counts(t)) continue;
      numbers.push_back({request.counts, all_counts + first, num_ids, num_ids});
    }
  }
  SOK_RETURN_IF_ERROR(FillNumbers(call_.stream(), all_counts, ids.merged.occurrences(), 1));
  SOK_RETURN_IF_ERROR(
      CopyPieces(call_.stream(), call_.scratch(), &scratch_.upload, Span<const CopiedWords>(words)));
  return CopyPieces(call_.stream(), call_.scratch(), &scratch_.upload, Span<const CopiedNumbers>(numbers));
}

Status ServeRows::EnqueueCounts(const Side& side, const int64_t* ids_begin, const int32_t* ranks,
                                int32_t* all_counts) {
  const bool any_counts = std::any_of(tables_.begin(), tables_.end(),
                                      [](const DeviceTable* table) { return table->counts_lookups(); });
  if (!side.training || !any_counts) return OkStatus();
  MergedGroup& merged = side.ids->merged;
  SOK_RETURN_IF_ERROR(merged.counts.Resize(call_.stream(), memory_, merged.occurrences()));
  ServedCounts counts;
  counts.inverse = merged.inverse.data();
  counts.occurrences = merged.occurrences();
  counts.counts = all_counts;
  counts.sums = merged.counts.data();
  counts.unique = merged.occurrences();
  counts.parts = static_cast<int>(parts());
  counts.ids_begin = ids_begin;
  counts.ranks = ranks;
  return AddServedCounts(call_.stream(), counts, reinterpret_cast<uint64_t*>(merged.words.report()));
}

Status ServeRows::CheckDamage(const int64_t* words) {
  const auto rank = static_cast<uint64_t>(words[0]);
  is_damaged_ = rank != ~uint64_t{0};
  return is_damaged_ ? requests_.Damaged(static_cast<int>(rank)) : OkStatus();
}

Status ServeRows::TakeTrained(MergedRows* rows, const int64_t* words) {
  MergedGroup& merged = served_.trained.merged;
  merged.TakeUniqueBegin(words + kReportWords);
  return rows->Take(words + merged.words.merge_size());
}

Status ServeRows::TakeRead(MergedRows* rows, const int64_t* words) {
  read_.merged.TakeUniqueBegin(words + kReportWords);
  const bool was_changed = served_.trained.merged.occurrences() > 0;
  if (was_changed) SOK_RETURN_IF_ERROR(rows->FindAgain());
  SOK_RETURN_IF_ERROR(rows->Take(words + read_.merged.words.merge_size()));
  // Rows may have been erased.
  if (was_changed) read_.merged.may_be_absent.assign(tables_.size(), 1);
  return OkStatus();
}

Status ServeRows::WriteErrors(const std::vector<Refusal>& refusals, AllocateWords allocate) {
  std::vector<int64_t> sizes;
  for (const Refusal& refusal : refusals) sizes.push_back(MessageWords(refusal.status, 0));
  int64_t* const words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();
  const std::vector<int64_t*> starts = MessageStarts(served_.own, sizes, words);
  MessageWriter writer;
  for (size_t r = 0; r < refusals.size(); ++r) {
    writer.AddHeader({MessageKind::kReply, refusals[r].status, refusals[r].token()}, starts[r]);
  }
  return writer.Send(&call_, &scratch_.upload);
}

int64_t ServeRows::RowsFor(int r, int t) const {
  if (tables_[t]->options().placement.is_replicated() && r != served_.rank) return 0;
  const RequestEntry& entry = requests_.of(r, t).entry;
  return served_.modes[t] == ExchangeMode::kRows ? entry.ids : entry.lengths;
}

int64_t ServeRows::FloatsFor(int r, int t) const {
  return AnswerFloats(RowsFor(r, t), served_.dims[t], served_.types[t]);
}

LookupOutput ServeRows::AnswerTo(int r, int t, float* out) const {
  const ServedIds& ids = requests_.trains(r) ? served_.trained : read_;
  LookupOutput answer;
  answer.ids = OccurrenceRowsOf(ids.merged, t, *tables_[t], ids.ids.data());
  answer.bags.first = ids.ids_begin[part(t, r)];
  answer.bags.bags = RowsFor(r, t);
  answer.bags.occurrences = static_cast<int32_t>(ids.num_ids(part(t, r)));
  if (served_.modes[t] == ExchangeMode::kSums) answer.bags.begin = ids.offsets_of(part(t, r));
  answer.ids.writes_halves = served_.types[t] != FloatType::kFloat32;
  answer.output = {out, served_.dims[t]};
  return answer;
}

Status ServeRows::WriteRows(AllocateWords allocate) {
  std::vector<int64_t> sizes;
  for (int r = 0; r < served_.ranks; ++r) {
    int64_t floats = 0;
    for (int t = 0; t < num_tables(); ++t) floats += FloatsFor(r, t);
    sizes.push_back(MessageWords(OkStatus(), WordsOf(floats * static_cast<int64_t>(sizeof(float)))));
  }
  int64_t* const words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();
  const std::vector<int64_t*> starts = MessageStarts(served_.own, sizes, words);
  MessageWriter writer;
  std::vector<LookupOutput> answers;
  for (int r = 0; r < served_.ranks; ++r) {
    int64_t* const payload = writer.AddHeader({MessageKind::kReply, OkStatus(), served_.token}, starts[r]);
    // An odd number of floats leaves half a word. Receivers do not read it, but it must be initialized.
    writer.ClearLast(payload, starts[r] + sizes[r]);
    float* out = reinterpret_cast<float*>(payload);
    auto* const last_word = reinterpret_cast<float*>(starts[r] + sizes[r] - 1);
    for (int t = 0; t < num_tables(); ++t) {
      const int64_t floats = FloatsFor(r, t);
      if (floats > 0) answers.push_back(AnswerTo(r, t, out));
      out += floats;
      // An odd number of 16-bit numbers leaves half of a float.
      const bool is_odd = floats * 4 > RowsFor(r, t) * served_.dims[t] * BytesOf(served_.types[t]);
      if (is_odd && out <= last_word) writer.Clear(reinterpret_cast<int32_t*>(out - 1));
      if (r == served_.own || !requests_.trains(r)) continue;
      LookupCounts& counts = *tables_[t]->lookup_counts();
      LookupCounts::Add(counts.bytes_sent, floats * static_cast<int64_t>(sizeof(float)));
      if (served_.own != kNoRank) continue;
      // The asker may be gone before anybody reads its own counts.
      LookupCounts::Add(counts.ids, requests_.of(r, t).entry.occurrences);
      LookupCounts::Add(counts.bytes_sent, requests_.of(r, t).entry.bytes());
    }
  }
  SOK_RETURN_IF_ERROR(writer.Send(&call_, &scratch_.upload));
  return EnqueueOutputs(call_.stream(), answers);
}

}  // namespace sok
