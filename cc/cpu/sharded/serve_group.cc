#include <utility>
#include <vector>

#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/pooling/pool.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/lookup/lookup_input.h"
#include "cc/messages/message.h"
#include "cc/messages/request.h"

namespace sok {
namespace {

// The requests of all ranks to this one.
struct AllRequests {
  std::vector<std::vector<TableRequest>> of;  // by rank, by table
  std::vector<bool> trains;                   // by rank
};

// Reads the messages. The error is the same for every owner that sees the same messages.
Status ReadRequests(const Inbox& inbox, int64_t num_tables, AllRequests* all) {
  const int ranks = inbox.size();
  all->of.resize(ranks);
  all->trains.resize(ranks);
  for (int r = 0; r < ranks; ++r) {
    MessageHeader header;
    Span<const int64_t> payload;
    Status status = ReadHeader(inbox[r], MessageKind::kRequest, &header, &payload);
    if (status.ok()) status = header.status;
    if (status.ok()) status = ReadRequest(payload, num_tables, &all->of[r]);
    if (!status.ok()) return inbox.ErrorOf(r, status);
    all->trains[r] = header.token != 0;
  }
  return OkStatus();
}

// Answers the requests of all ranks for one table. Serves first the ranks that train, then those that only
// read, whose ids are not inserted.
class TableServer {
 public:
  TableServer(Table* table, ExchangeMode mode, int t, const AllRequests& requests)
      : table_(table), mode_(mode), t_(t), requests_(requests) {}

  // The number of rows that rank `r` gets. With replicas a rank gets rows from itself only.
  int64_t RowsFor(int r) const {
    const TableOptions& options = table_->options();
    if (options.placement.is_replicated() && r != options.rank) return 0;
    return mode_ == ExchangeMode::kRows ? request(r).ids.size()
                                        : static_cast<int64_t>(request(r).lengths.size());
  }

  // What the answer to rank `r` takes, in units of a float.
  int64_t FloatsFor(int r) const {
    const TableOptions& options = table_->options();
    return AnswerFloats(RowsFor(r), options.dim, AnswerType(options.record.weights, mode_));
  }

  const TableRequest& request(int r) const { return requests_.of[r][t_]; }

  bool trains(int r) const { return requests_.trains[r]; }

  Status Resolve(Executor& executor, Deduplicator* deduplicator) {
    SOK_RETURN_IF_ERROR(Resolve(executor, /*training=*/true, deduplicator, &trained_));
    return Resolve(executor, /*training=*/false, deduplicator, &read_);
  }

  // Writes the rows for rank `r`, RowsFor(r) of them, to `out`.
  void Answer(Executor& executor, int r, float* out) const {
    const Served& served = requests_.trains[r] ? trained_ : read_;
    const ServedPart& part = served.part;
    const int64_t dim = table_->options().dim;
    const int64_t first = part.ids_begin[r];
    const int64_t count = part.ids_begin[r + 1] - first;
    const Span<const int32_t> inverse = Span<const int32_t>(part.merged.inverse).subspan(first, count);
    if (mode_ == ExchangeMode::kRows) {
      GatherAsStored(executor, served.pointers.rows(), inverse, dim, out);
      return;
    }
    const int64_t rows = part.rows_begin[r + 1] - part.rows_begin[r];
    if (rows == 0) return;
    std::vector<int64_t> offsets(part.row_offsets.begin() + part.rows_begin[r],
                                 part.row_offsets.begin() + part.rows_begin[r + 1] + 1);
    for (int64_t& offset : offsets) offset -= first;
    PoolForward(executor, served.pointers.rows(), inverse, offsets, {}, Combiner::kSum, dim, out, dim);
  }

  ServedPart TakeTrainedPart() { return std::move(trained_.part); }

 private:
  struct Served {
    ServedPart part;
    RowPointers pointers;
  };

  Status Resolve(Executor& executor, bool training, Deduplicator* deduplicator, Served* served) {
    ServedPart& part = served->part;
    std::vector<int64_t> ids;
    std::vector<int32_t> occurrences;  // kRows, if the table counts
    part.ids_begin.assign(1, 0);
    part.rows_begin.assign(1, 0);
    part.row_offsets.assign(1, 0);
    for (size_t r = 0; r < requests_.of.size(); ++r) {
      if (requests_.trains[r] == training) {
        const TableRequest& request = requests_.of[r][t_];
        ids.insert(ids.end(), request.ids.begin(), request.ids.end());
        occurrences.insert(occurrences.end(), request.counts.begin(), request.counts.end());
        for (const int32_t length : request.lengths) {
          part.row_offsets.push_back(part.row_offsets.back() + length);
        }
      }
      part.ids_begin.push_back(static_cast<int64_t>(ids.size()));
      part.rows_begin.push_back(mode_ == ExchangeMode::kRows
                                    ? part.ids_begin.back()
                                    : static_cast<int64_t>(part.row_offsets.size()) - 1);
    }
    if (training && table_->counts_lookups() && mode_ == ExchangeMode::kRows &&
        occurrences.size() != ids.size()) {
      return WrongCounts(static_cast<int64_t>(occurrences.size()), static_cast<int64_t>(ids.size()));
    }
    if (ids.size() > INT32_MAX) {
      return TooManyIds(table_->options().name, static_cast<int64_t>(ids.size()));
    }
    part.merged.inverse.resize(ids.size());
    SOK_RETURN_IF_ERROR(
        deduplicator->Run(executor, ids, &part.merged.unique, Span<int32_t>(part.merged.inverse)));
    SOK_RETURN_IF_ERROR(ResolveRows(executor, table_, training, occurrences, &part.merged));
    served->pointers.Fill(*table_, part.merged.unique, part.merged.rows_to_read());
    return OkStatus();
  }

  Table* table_;
  ExchangeMode mode_;
  int t_;
  const AllRequests& requests_;
  Served trained_;
  Served read_;
};

// Sends every rank an answer with an error instead of rows.
Status WriteErrors(int own, const std::vector<Refusal>& refusals, AllocateWords allocate) {
  std::vector<int64_t> sizes;
  for (const Refusal& refusal : refusals) sizes.push_back(MessageWords(refusal.status, 0));
  int64_t* words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();
  const std::vector<int64_t*> starts = MessageStarts(own, sizes, words);
  for (size_t r = 0; r < refusals.size(); ++r) {
    WriteHeader({MessageKind::kReply, refusals[r].status, refusals[r].token()}, starts[r]);
  }
  return OkStatus();
}

Status WriteRows(Executor& executor, int own, std::vector<TableServer>& servers, Span<Table* const> tables,
                 int ranks, int64_t token, AllocateWords allocate) {
  std::vector<int64_t> sizes(ranks);
  for (int r = 0; r < ranks; ++r) {
    int64_t floats = 0;
    for (size_t t = 0; t < servers.size(); ++t) floats += servers[t].FloatsFor(r);
    sizes[r] = MessageWords(OkStatus(), WordsOf(floats * static_cast<int64_t>(sizeof(float))));
  }
  int64_t* words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();
  const std::vector<int64_t*> starts = MessageStarts(own, sizes, words);
  struct Answer {
    int rank;
    size_t table;
    float* out;
  };
  std::vector<Answer> answers;
  for (int r = 0; r < ranks; ++r) {
    int64_t* payload = WriteHeader({MessageKind::kReply, OkStatus(), token}, starts[r]);
    // An odd number of floats leaves half a word. Receivers do not read it, but it must be initialized.
    int64_t* const end = starts[r] + sizes[r];
    if (payload < end) end[-1] = 0;
    float* out = reinterpret_cast<float*>(payload);
    for (size_t t = 0; t < servers.size(); ++t) {
      const int64_t floats = servers[t].FloatsFor(r);
      if (floats > 0) {
        out[floats - 1] = 0.0f;  // an odd number of 16-bit numbers leaves half of it
        answers.push_back({r, t, out});
      }
      out += floats;
      if (r == own || !servers[t].trains(r)) continue;
      LookupCounts& counts = *tables[t]->shared_lookup_counts();
      LookupCounts::Add(counts.bytes_sent, floats * static_cast<int64_t>(sizeof(float)));
      if (own != kNoRank) continue;
      // The asker may be gone before anybody reads its own counts.
      LookupCounts::Add(counts.ids, servers[t].request(r).entry().occurrences);
      LookupCounts::Add(counts.bytes_sent, servers[t].request(r).entry().bytes());
    }
  }
  return ForEachPart(executor, static_cast<int64_t>(answers.size()), [&](Executor& inner, int64_t i) {
    servers[answers[i].table].Answer(inner, answers[i].rank, answers[i].out);
    return OkStatus();
  });
}

std::vector<TableDefinition> DefinitionsOf(Span<Table* const> tables, Span<const ExchangeMode> modes) {
  std::vector<TableDefinition> definitions;
  for (int64_t t = 0; t < tables.size(); ++t) definitions.push_back(DefinitionOf(*tables[t], modes[t]));
  return definitions;
}

}  // namespace

Status ServeGroup(Executor& executor, Span<Table* const> tables, Span<const ExchangeMode> modes, int rank,
                  const Inbox& requests, ServedPlan* plan, GroupScratch* scratch, AllocateWords allocate) {
  const int ranks = requests.size();
  plan->token = NextToken();
  plan->rank = rank;
  plan->ranks = ranks;
  plan->modes.assign(modes.begin(), modes.end());
  for (const Table* table : tables) plan->counts.push_back(table->shared_lookup_counts());
  AllRequests all;
  plan->status = ReadRequests(requests, tables.size(), &all);
  std::vector<Refusal> refusals(ranks, Refusal{plan->status});
  if (plan->status.ok()) {
    plan->status = CheckAgreement(
        DefinitionsOf(tables, modes), rank, ranks,
        [&](int r, int64_t t) { return all.of[r][t].fingerprints; }, &refusals);
  }
  if (plan->status.ok()) {
    plan->status = CheckModes(requests, modes, [&](int r, int64_t t) { return all.of[r][t].entry(); });
    refusals.assign(ranks, Refusal{plan->status});
  }
  if (!plan->status.ok()) return WriteErrors(requests.own(), refusals, allocate);

  const TableLocks locks(tables);
  std::vector<TableServer> servers;
  for (int64_t t = 0; t < tables.size(); ++t) {
    servers.emplace_back(tables[t], modes[t], static_cast<int>(t), all);
  }
  plan->status = ForEachPart(executor, tables.size(), [&](Executor& inner, int64_t t) {
    return servers[t].Resolve(inner, scratch->deduplicators.Take().get());
  });
  if (!plan->status.ok()) {
    plan->status = OnRank(rank, plan->status);
    return WriteErrors(requests.own(), std::vector<Refusal>(ranks, Refusal{plan->status}), allocate);
  }
  SOK_RETURN_IF_ERROR(WriteRows(executor, requests.own(), servers, tables, ranks, plan->token, allocate));
  for (TableServer& server : servers) plan->parts.push_back(server.TakeTrainedPart());
  return OkStatus();
}

}  // namespace sok
