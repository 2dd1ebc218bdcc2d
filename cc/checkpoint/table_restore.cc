// TableRestore of table_checkpoint.h.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/foreign_tables.h"
#include "cc/checkpoint/restore_rows.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/optimizers/rule_info.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

class ChainRestore final : public TableRestore {
 public:
  ChainRestore(std::vector<ChainedTable> chain, const TableOptions& options, const RestoreParts& parts)
      : chain_(std::move(chain)), options_(options), parts_(parts) {}

  const TableOptions& options() const override { return options_; }
  std::vector<std::string> notices() const override;

  // Checks that the checkpoint fits the variable, and takes from it what options() says.
  Status Prepare();
  Status Check() override {
    const Status status = NamedError(options_, WithinMemory([&] { return CheckAll(); }));
    checked_ = status.ok();
    return status;
  }
  Status StartAfter(const std::string& since) override;
  Status Apply(Executor& executor, HeldTable* table) override {
    return NamedError(options_, WithinMemory([&] { return LoadChain(executor, table); }));
  }
  StatusOr<std::shared_ptr<EngineTable>> Load(const EngineContext& context, Engine* engine) override;

 private:
  Span<const ChainedTable> to_read() const {
    const Span<const ChainedTable> all(chain_);
    return all.subspan(first_, all.size() - first_);
  }
  const Manifest& last() const { return chain_.back().manifest; }
  std::string last_path() const { return chain_.back().path; }
  int saved_ranks() const { return last().table.options.ranks; }
  // The shard that has exactly the rows of this rank; null if the number of ranks or the placement differs.
  const SavedShard* OwnShard() const;
  bool lags() const { return last().optimizer.has_value() && last().optimizer->history.has_value(); }
  // Whether the table gets the weights of the first checkpoint without slots and without steps to catch up.
  bool maps_weights() const {
    return parts_.map_weights && first_ == 0 && OwnShard() != nullptr && !lags() &&
           !(parts_.optimizer && last().optimizer.has_value());
  }
  ShardSource SourceOf(const ChainedTable& checkpoint, int shard) const {
    return ShardSource{*checkpoint.checkpoint, checkpoint.manifest, shard};
  }
  // The shards that can have keys of this rank.
  std::vector<int> Shards() const;

  // Whether keys wait for admission.
  bool HasWaiting() const;
  // About the number of rows that a shard of the full checkpoint has for this rank.
  int64_t NewRowsOfShard() const;

  std::vector<std::string> LeftOut() const;
  // Says that the files have `what` in the array `name` as another type than `own`, if they do.
  void AddConversion(const char* what, const std::string& name, FloatType own,
                     std::vector<std::string>* notices) const;
  Status CheckFits() const;
  Status CheckForeignFits() const;
  Status PrepareOptimizer();
  StatusOr<std::unique_ptr<Optimizer>> MakeSavedOptimizer() const;
  Status CheckAll();
  Status CheckDistinctKeys() const;
  Status CheckShard(const ShardSource& source, int64_t* rows) const;
  Status ReadInitialRows();
  StatusOr<PastSteps> ReadPastSteps() const;
  Status LoadAll(Executor& executor, HeldTable* fresh);
  Status LoadChain(Executor& executor, HeldTable* table);
  Status AttachOptimizer(HeldTable* table) const;
  StatusOr<std::unique_ptr<SavedRowCatchUp>> MakeCatchUp() const;
  Status LoadCheckpoint(Executor& executor, const ChainedTable& checkpoint, const RowsToRestore& what,
                        HeldTable* table, int64_t* rows) const;
  Status Delete(const ShardSource& source, HeldTable* table) const;
  Status CheckSize(int64_t table_rows, int64_t rows) const;

  const std::vector<ChainedTable> chain_;
  TableOptions options_;
  const RestoreParts parts_;
  int64_t first_ = 0;         // the first of the chain to read
  bool checked_ = false;      // whether CheckAll has succeeded: Load reads the same bytes, by their checksums
  std::vector<float> hyper_;  // of the checkpoint's optimizer, in its order
};

Status ChainRestore::Prepare() {
  SOK_RETURN_IF_ERROR(CheckFits());
  SOK_RETURN_IF_ERROR(PrepareOptimizer());
  if (last().is_foreign()) return OkStatus();
  const Initializer& saved = last().table.options.initializer;
  Initializer& own = options_.initializer;
  if (saved.kind == own.kind && saved.a == own.a &&
      (saved.b == own.b || own.kind == InitializerKind::kConstant)) {
    own.seed = saved.seed;
  }
  const bool lacks_rows = own.kind == InitializerKind::kGiven && options_.initial_rows.empty();
  return lacks_rows ? WithinMemory([&] { return ReadInitialRows(); }) : OkStatus();
}

Status ChainRestore::ReadInitialRows() {
  const ShardSource source = SourceOf(chain_.front(), 0);
  const PlacedArray* const array = source.Find("initial_rows");
  const ArrayType wanted{"<f4", {static_cast<int64_t>(options_.initializer.rows), options_.dim}};
  if (array == nullptr || array->array.type != wanted) {
    return DataLoss("'", chain_.front().path, "' lacks the initial rows of '", last_path(), "'");
  }
  SOK_ASSIGN_OR_RETURN(auto reader, source.Open("initial_rows"));
  options_.initial_rows.resize(static_cast<size_t>(options_.initializer.rows) *
                               static_cast<size_t>(options_.dim));
  return reader->Read(options_.initial_rows.data(),
                      static_cast<int64_t>(options_.initial_rows.size() * sizeof(float)));
}

Status ChainRestore::CheckFits() const {
  const TableOptions& saved = last().table.options;
  const auto differs = [&](const char* what, const auto& own, const auto& stored) {
    return InvalidArgument("Embedding variable '", options_.name, "' has ", what, " ", own,
                           ", but the checkpoint '", last_path(), "' has ", stored);
  };
  if (saved.dim != options_.dim) return differs("dim", options_.dim, saved.dim);
  if (last().is_foreign()) return CheckForeignFits();
  if (saved.key_dtype != options_.key_dtype) return differs("keys of", options_.key_dtype, saved.key_dtype);
  if (saved.use_hashtable != options_.use_hashtable) {
    const auto words = [](bool hashed) { return hashed ? "a hash table" : "no hash table"; };
    return differs("its rows in", words(options_.use_hashtable), words(saved.use_hashtable));
  }
  const SavedShard* own = OwnShard();
  if (options_.use_hashtable && options_.capacity > 0 && own != nullptr &&
      own->table_rows > options_.capacity) {
    return ResourceExhausted("Embedding variable '", options_.name, "' holds at most ", options_.capacity,
                             " rows on rank ", options_.rank, ", but the checkpoint '", last_path(), "' has ",
                             own->table_rows);
  }
  return OkStatus();
}

Status ChainRestore::CheckForeignFits() const {
  if (options_.use_hashtable) return OkStatus();
  const int64_t keys = options_.placement.StaticKeys(options_.ranks, options_.capacity);
  if (last().rows() == keys) return OkStatus();
  return InvalidArgument("Embedding variable '", options_.name, "' has no hash table, and the keys [0, ",
                         keys, "), but the checkpoint '", last_path(), "' has ", last().rows(),
                         " rows of a table of ", last().system);
}

Status ChainRestore::PrepareOptimizer() {
  if (!last().optimizer.has_value() || (!parts_.optimizer && !lags())) return OkStatus();
  const SavedOptimizer& saved = *last().optimizer;
  const auto made = MakeOptimizer(saved.name);
  if (!made.ok()) return InvalidArgument("'", last_path(), "': ", made.status().message());
  for (const std::string& name : made.value()->hyper_parameters()) {
    const auto found = std::find_if(saved.hyper.begin(), saved.hyper.end(),
                                    [&](const auto& hyper) { return hyper.first == name; });
    if (found == saved.hyper.end()) {
      return DataLoss("'", last_path(), "' lacks the hyper-parameter \"", name, "\" of ", saved.name);
    }
    hyper_.push_back(found->second);
  }
  const Status good = made.value()->CheckHyper(hyper_);
  if (!good.ok()) return DataLoss("'", last_path(), "': ", good.message());
  const std::vector<SlotSpec> slots = made.value()->Slots(options_.dim, hyper_);
  const std::vector<std::string> names = made.value()->slot_names();
  bool fits = slots.size() == saved.slots.size() && (!lags() || made.value()->can_save_lag());
  for (size_t i = 0; fits && i < slots.size(); ++i) {
    fits = names[i] == saved.slots[i].name && slots[i].width == saved.slots[i].width;
  }
  return fits ? OkStatus() : DataLoss("'", last_path(), "' has slots that ", saved.name, " does not have");
}

const SavedShard* ChainRestore::OwnShard() const {
  if (last().is_foreign() || saved_ranks() != options_.ranks ||
      last().table.options.placement != options_.placement)
    return nullptr;
  const int shard = options_.placement.is_replicated() ? 0 : options_.rank;
  return &last().shards[static_cast<size_t>(shard)];
}

std::vector<int> ChainRestore::Shards() const {
  if (const SavedShard* own = OwnShard()) return {static_cast<int>(own - last().shards.data())};
  // A key's owners in two placements by key are congruent modulo the greatest common divisor of their ranks.
  const bool by_key =
      !last().is_foreign() && last().table.options.placement.is_by_key() && options_.placement.is_by_key();
  const int step = by_key ? std::gcd(saved_ranks(), options_.ranks) : 1;
  std::vector<int> shards;
  for (int shard = options_.rank % step; shard < saved_ranks(); shard += step) shards.push_back(shard);
  return shards;
}

bool ChainRestore::HasWaiting() const {
  const std::vector<SavedShard>& shards = last().shards;
  return std::any_of(shards.begin(), shards.end(), [](const SavedShard& shard) {
    const auto found = shard.arrays.find("waiting_keys");
    return found != shard.arrays.end() && found->second.array.bytes() > 0;
  });
}

int64_t ChainRestore::NewRowsOfShard() const {
  if (OwnShard() != nullptr) return INT64_MAX;
  const int64_t rows = chain_.front().manifest.rows();
  const int64_t of_rank = options_.placement.is_replicated() ? rows : rows / options_.ranks;
  return of_rank / std::max<int64_t>(1, static_cast<int64_t>(Shards().size()));
}

std::vector<std::string> ChainRestore::notices() const {
  std::vector<std::string> notices;
  std::string names;
  for (const std::string& name : LeftOut()) names += (names.empty() ? "'" : ", '") + name + "'";
  if (!names.empty()) {
    notices.push_back(StrCat("Embedding variable '", options_.name,
                             "' has no place for what its checkpoint has as ", names));
  }
  AddConversion("rows", "values", options_.record.weights, &notices);
  if (!parts_.optimizer || !last().optimizer.has_value()) return notices;
  const std::vector<SlotSpec> slots =
      MakeOptimizer(last().optimizer->name).value()->Slots(options_.dim, hyper_);
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::string& name = last().optimizer->slots[i].name;
    const FloatType own = slots[i].one_per_row ? FloatType::kFloat32 : options_.record.slots;
    AddConversion(StrCat("slot '", name, "'").c_str(), "slot-" + name, own, &notices);
  }
  return notices;
}

void ChainRestore::AddConversion(const char* what, const std::string& name, FloatType own,
                                 std::vector<std::string>* notices) const {
  const auto& arrays = chain_.front().manifest.shards.front().arrays;
  const auto array = arrays.find(name);
  if (array == arrays.end() || !array->second.has_file()) return;
  const std::string& saved = array->second.stored_dtype();
  if (saved == DtypeOf(own)) return;
  notices->push_back(StrCat("Embedding variable '", options_.name, "' converts the ", what, " of '",
                            last_path(), "' from ", NameOfDtype(saved), " to ", NameOf(own),
                            own == FloatType::kFloat32 ? "" : ", rounded to nearest"));
}

std::vector<std::string> ChainRestore::LeftOut() const {
  std::vector<std::string> names = last().left_out;
  const bool counts = parts_.counts && options_.use_hashtable;
  const Admission::Kind admission = options_.admission.kind;
  const bool keeps_frequency =
      counts && (admission != Admission::Kind::kNone || options_.on_full == OnFull::kEvictLfu);
  const bool keeps_steps = counts && options_.eviction.kind == Eviction::Kind::kGlobalStep;
  for (const SavedShard& shard : last().shards) {
    for (const auto& [name, kept] :
         {std::pair("frequency", keeps_frequency), std::pair("last_step", keeps_steps),
          std::pair("waiting_keys", counts && admission != Admission::Kind::kNone)}) {
      const auto found = shard.arrays.find(name);
      if (!kept && found != shard.arrays.end() && found->second.array.bytes() > 0) {
        names.push_back(found->second.name);
      }
    }
  }
  return last().is_foreign() && parts_.optimizer ? names : std::vector<std::string>();
}

Status ChainRestore::CheckAll() {
  int64_t rows = 0;
  for (const ChainedTable& checkpoint : to_read()) {
    for (const int shard : Shards()) SOK_RETURN_IF_ERROR(CheckShard(SourceOf(checkpoint, shard), &rows));
  }
  if (chain_.size() == 1 && options_.use_hashtable && options_.capacity > 0 && rows > options_.capacity) {
    return ResourceExhausted("Embedding variable '", options_.name, "' holds at most ", options_.capacity,
                             " rows on rank ", options_.rank, ", but the checkpoint '", last_path(), "' has ",
                             rows, " for it");
  }
  if (last().is_foreign()) return CheckDistinctKeys();
  return lags() ? ReadPastSteps().status() : OkStatus();
}

Status ChainRestore::CheckDistinctKeys() const {
  if (last().system == kVariable) return OkStatus();
  for (const ChainedTable& checkpoint : chain_) {
    std::vector<ShardSource> sources;
    for (const int shard : Shards()) sources.push_back(SourceOf(checkpoint, shard));
    SOK_RETURN_IF_ERROR(CheckDistinct(sources, options_));
  }
  return OkStatus();
}

Status ChainRestore::CheckShard(const ShardSource& source, int64_t* rows) const {
  const KeyFilter filter(options_, source);
  if (maps_weights()) {
    SOK_ASSIGN_OR_RETURN(const auto file, source.checkpoint.Data(source.Find("values")->shard));
    file->KeepCached();
  }
  SOK_RETURN_IF_ERROR(ForEachKeyPiece(source, "keys", filter, [&](Span<const int64_t> keys) {
    *rows += keys.size();
    return OkStatus();
  }));
  for (const auto& entry : source.saved().arrays) {
    if (entry.first == "keys") continue;
    SOK_ASSIGN_OR_RETURN(const auto reader, source.Open(entry.first));
    SOK_RETURN_IF_ERROR(reader->Skip(entry.second.array.bytes()));
  }
  return OkStatus();
}

StatusOr<PastSteps> ChainRestore::ReadPastSteps() const {
  const SavedOptimizer::History& history = *last().optimizer->history;
  const ShardSource source = SourceOf(chain_.back(), 0);
  SOK_ASSIGN_OR_RETURN(auto reader, source.Open("alphas"));
  PastSteps past{history.beta1, history.beta2, history.epsilon, history.first_step, {}};
  past.alphas.resize(static_cast<size_t>(source.Find("alphas")->array.type.shape[0]));
  SOK_RETURN_IF_ERROR(
      reader->Read(past.alphas.data(), static_cast<int64_t>(past.alphas.size() * sizeof(float))));
  return past;
}

StatusOr<std::unique_ptr<Optimizer>> ChainRestore::MakeSavedOptimizer() const {
  const SavedOptimizer& saved = *last().optimizer;
  auto made = MakeOptimizer(saved.name);
  SOK_RETURN_IF_ERROR(made.status());
  made.value()->RestoreSteps(saved.steps);
  if (!lags()) return made;
  SOK_ASSIGN_OR_RETURN(const auto past, ReadPastSteps());
  const Status status = made.value()->RestorePastSteps(past);
  if (!status.ok()) return DataLoss("'", last_path(), "': ", status.message());
  return made;
}

Status ChainRestore::AttachOptimizer(HeldTable* table) const {
  if (!parts_.optimizer || !last().optimizer.has_value()) return OkStatus();
  const SavedOptimizer& saved = *last().optimizer;
  SOK_RETURN_IF_ERROR(table->RestoreOptimizer({saved.name, saved.steps, hyper_}));
  if (!lags()) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto past, ReadPastSteps());
  const Status status = table->RestorePastSteps(past);
  return status.ok() ? status : DataLoss("'", last_path(), "': ", status.message());
}

StatusOr<std::unique_ptr<SavedRowCatchUp>> ChainRestore::MakeCatchUp() const {
  SOK_ASSIGN_OR_RETURN(auto optimizer, MakeSavedOptimizer());
  return SavedRowCatchUp::Create(std::move(optimizer), options_.dim, hyper_);
}

StatusOr<std::shared_ptr<EngineTable>> ChainRestore::Load(const EngineContext& context, Engine* engine) {
  auto made = engine->MakeTable(context, options_);
  SOK_RETURN_IF_ERROR(made.status());
  SOK_ASSIGN_OR_RETURN(const auto held, made.value()->Hold(context));
  const Status status = WithinMemory([&] { return LoadAll(context.executor, held.get()); });
  if (!status.ok()) return NamedError(options_, status);
  return made;
}

Status ChainRestore::StartAfter(const std::string& since) {
  const auto found = std::find_if(chain_.begin(), chain_.end(),
                                  [&](const ChainedTable& checkpoint) { return checkpoint.id == since; });
  if (found == chain_.end()) {
    return FailedPrecondition("Embedding variable '", options_.name, "': '", last_path(),
                              "' does not build on the save ", since);
  }
  if (lags()) {
    return FailedPrecondition("Embedding variable '", options_.name, "': '", last_path(),
                              "' is an increment of exact Adam, which moves every row");
  }
  first_ = found - chain_.begin() + 1;
  return OkStatus();
}

Status ChainRestore::LoadAll(Executor& executor, HeldTable* fresh) {
  SOK_RETURN_IF_ERROR(AttachOptimizer(fresh));
  return LoadChain(executor, fresh);
}

Status ChainRestore::LoadChain(Executor& executor, HeldTable* table) {
  if (parts_.counts) {
    SOK_RETURN_IF_ERROR(table->RestoreClock({last().steps, last().uses, last().table.counts_global_steps}));
  }
  const bool is_trained = table->state().optimizer.has_value();
  RowsToRestore what;
  what.counts = parts_.counts;
  what.checked = checked_;
  if (is_trained) what.contents = RowContents::kWeightsAndSlots;
  if (last().optimizer.has_value()) {
    // Rows that another system has not trained have missed no step.
    what.first_step = (last().is_foreign() ? last() : chain_.front().manifest).optimizer->steps;
  }
  std::unique_ptr<SavedRowCatchUp> catch_up;
  if (lags() && !is_trained) {
    SOK_ASSIGN_OR_RETURN(catch_up, MakeCatchUp());
    what.contents = RowContents::kWeightsCaughtUp;
    what.catch_up = catch_up.get();
  }
  // A number of rows does not tell of keys that have a row and wait, or of those without hashing.
  const bool rows_tell = chain_.size() == 1 && !HasWaiting() && options_.use_hashtable;
  if (last().is_foreign() && !rows_tell && !checked_) {
    SOK_RETURN_IF_ERROR(CheckDistinctKeys());
  }
  int64_t rows = 0;
  for (const ChainedTable& checkpoint : to_read()) {
    const bool is_full = &checkpoint == chain_.data();
    what.maps_weights = maps_weights() && is_full;
    what.new_rows = is_full ? NewRowsOfShard() : 0;
    SOK_RETURN_IF_ERROR(LoadCheckpoint(executor, checkpoint, what, table, &rows));
  }
  return CheckSize(table->state().rows, rows);
}

Status ChainRestore::LoadCheckpoint(Executor& executor, const ChainedTable& checkpoint,
                                    const RowsToRestore& what, HeldTable* table, int64_t* rows) const {
  for (const int shard : Shards()) {
    const ShardSource source = SourceOf(checkpoint, shard);
    SOK_RETURN_IF_ERROR(Delete(source, table));
    SOK_RETURN_IF_ERROR(RestoreRows(executor, source, what, table, rows));
    if (!parts_.counts) continue;
    SOK_RETURN_IF_ERROR(RestoreWaiting(source, table));
    if (&checkpoint == &chain_.back()) SOK_RETURN_IF_ERROR(RestoreBloom(source, table));
  }
  return OkStatus();
}

Status ChainRestore::Delete(const ShardSource& source, HeldTable* table) const {
  if (!options_.use_hashtable) return OkStatus();
  const KeyFilter filter(options_, source);
  for (const char* name : {"deleted", "waiting_deleted"}) {
    if (source.Find(name) == nullptr) continue;
    SOK_RETURN_IF_ERROR(ForEachKeyPiece(source, name, filter, [&](Span<const int64_t> keys) {
      if (std::string_view(name) == "deleted") return table->Erase(keys);
      return options_.admission.kind == Admission::Kind::kCounter ? table->EraseWaiting(keys) : OkStatus();
    }));
  }
  return OkStatus();
}

// Finds keys that occur twice in different pieces, and shards that were swapped.
Status ChainRestore::CheckSize(int64_t table_rows, int64_t rows) const {
  if (!options_.use_hashtable) return OkStatus();
  int64_t expected = table_rows;
  if (chain_.size() == 1) expected = rows;
  if (const SavedShard* own = OwnShard()) expected = own->table_rows;
  if (table_rows == expected) return OkStatus();
  if (last().is_foreign()) SOK_RETURN_IF_ERROR(CheckDistinctKeys());
  return DataLoss("'", last_path(), "' gives ", table_rows, " rows on rank ", options_.rank, ", not ",
                  expected, ": keys occur twice, or the checkpoints of its chain do not belong together");
}

// Gives tables of another system their optimizer.
Status TakeForeignSlots(const RestoreParts& parts, std::vector<ChainedTable>* chain) {
  if (!chain->back().manifest.is_foreign()) return OkStatus();
  for (ChainedTable& link : *chain) {
    const std::string trained_by = parts.optimizer ? parts.trained_by : "";
    SOK_RETURN_IF_ERROR(TakeSlots(*link.checkpoint, trained_by, &link.manifest));
    if (link.manifest.optimizer.has_value() != chain->front().manifest.optimizer.has_value()) {
      return DataLoss("'", chain->front().path, "' and '", link.path, "' have not the same slots");
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<TableRestore>> TableRestore::Open(OpenedCheckpoints& opened,
                                                           const std::string& prefix, const std::string& name,
                                                           const TableOptions& options,
                                                           const RestoreParts& parts) {
  std::unique_ptr<ChainRestore> restore;
  const Status status = WithinMemory([&]() -> Status {
    SOK_ASSIGN_OR_RETURN(auto chain, ReadChain(opened, prefix, name));
    SOK_RETURN_IF_ERROR(TakeForeignSlots(parts, &chain));
    restore = std::make_unique<ChainRestore>(std::move(chain), options, parts);
    return restore->Prepare();
  });
  if (!status.ok()) return NamedError(options, status);
  return std::unique_ptr<TableRestore>(std::move(restore));
}

}  // namespace sok
