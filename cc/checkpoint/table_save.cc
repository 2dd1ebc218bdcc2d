// The stages of a save: see table_checkpoint.h.
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/manifest_json.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/checkpoint/written_tables.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

// What rank 0 decided for each table, by name: the chain to build on, which is empty for a full table.
using SavePlan = std::map<std::string, std::vector<ChainLink>>;

const std::string& NameOf(const TableToSave& table) {
  return table.name.empty() ? table.table->options().name : table.name;
}

Status WriteSavePlan(const SaveRequest& request, const SavePlan& plan) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, chain] : plan) json[name] = ChainJson(chain);
  const std::string text = JsonText(json);
  // Not synced: it says nothing after this save.
  SOK_ASSIGN_OR_RETURN(auto file, request.files->Create(PlanPath(request.prefix, request.id)));
  return file->WriteAt(0, text.data(), static_cast<int64_t>(text.size()));
}

StatusOr<SavePlan> ReadSavePlan(const SaveRequest& request) {
  const std::string path = PlanPath(request.prefix, request.id);
  std::string text;
  SOK_RETURN_IF_ERROR(ReadWholeFile(*request.files, path, kMaxEntryBytes, &text));
  JsonReader reader(path);
  const nlohmann::json json = reader.Parse(text);
  SavePlan plan;
  for (auto table = json.begin(); reader.ok() && table != json.end(); ++table) {
    plan[table.key()] = ReadChain(&reader, table.value());
  }
  if (!reader.ok()) return reader.status();
  return plan;
}

// Whether the optimizer's state can be saved in a delta of the chain that begins with `full`.
bool OptimizerAllowsDelta(HeldTable* table, const Manifest& full, bool apart) {
  const std::optional<HeldOptimizer> own = table->state().optimizer;
  if (!own.has_value() || !full.optimizer.has_value()) return !own.has_value() && !full.optimizer.has_value();
  if (own->name != full.optimizer->name) return false;
  const auto optimizer = MakeOptimizer(own->name);
  if (!optimizer.ok()) return false;
  if (!optimizer.value()->has_catch_up()) return true;
  if (apart) return false;
  if (!optimizer.value()->can_save_lag() || own->steps > std::numeric_limits<uint32_t>::max()) return false;
  PastSteps past;
  return table->ReadPastSteps(&past).ok() && past.first_step == full.optimizer->steps;
}

// Reading a longer chain would take longer than writing a full checkpoint.
constexpr size_t kMaxChain = 1000;

// The links of a delta of this table; empty if it must be saved in full.
std::vector<ChainLink> ChainFor(HeldTable* table, const std::string& name, const SaveRequest& request,
                                OpenedCheckpoints* opened) {
  const HeldState state = table->state();
  const ChainEnd& end = state.chain_end;
  if (!request.delta || !state.tracks_changes || end.prefix.empty()) return {};
  const auto chain = ReadChain(*opened, end.prefix, name, end.id);
  if (!chain.ok()) return {};
  if (chain.value().size() >= kMaxChain) return {};
  const Manifest& full = chain.value().front().manifest;
  const TableOptions& saved = full.table.options;
  const TableOptions& own = table->options();
  if (saved.ranks != own.ranks || saved.placement != own.placement) return {};
  if (!OptimizerAllowsDelta(table, full, request.apart)) return {};
  auto links = LinksTo(*opened, chain.value(), request.prefix);
  return links.ok() ? links.value() : std::vector<ChainLink>();
}

// Evicts rows and brings the table into the state to write.
Status PrepareTable(HeldTable* table, const SaveRequest& request, const std::vector<ChainLink>& chain) {
  if (table->options().use_hashtable) SOK_RETURN_IF_ERROR(table->EvictForSave());
  if (!chain.empty()) {
    const HeldState state = table->state();
    if (!state.tracks_changes || state.chain_end.id != chain.back().id) {
      return FailedPrecondition("rank ", table->options().rank,
                                " does not track changes since the checkpoint '", chain.back().prefix,
                                "', as rank 0 does");
    }
  } else if (request.delta) {
    SOK_RETURN_IF_ERROR(table->TrackChanges());
  }
  // Rank 0 allows deltas of rows that lag only to ranks that are not apart. To others it may allow a delta
  // just before the table's first step: all rows that lag have then changed since the chain's end.
  if (chain.empty() || request.apart) SOK_RETURN_IF_ERROR(table->SettleOptimizer());
  return table->BeginSave();
}

// Returns work(held); errors name the variable.
template <typename Work>
Status WhileHeld(const EngineContext& context, EngineTable* table, const Work& work) {
  SOK_ASSIGN_OR_RETURN(const auto held, table->Hold(context));
  return NamedError(table->options(), WithinMemory([&] { return work(held.get()); }));
}

Status WriteTables(const EngineContext& context, Span<const TableToSave> tables, const SaveRequest& request) {
  Files& files = *request.files;
  const std::string directory = FolderOf(request.prefix);
  const int rank = tables[0].table->options().rank;
  const auto plan = ReadSavePlan(request);
  if (rank != 0 && plan.status().code() == StatusCode::kNotFound) {
    return NotFound("rank ", rank, " does not see what rank 0 made in '", directory,
                    "': a checkpoint needs a directory that all ranks share (", plan.status().message(), ")");
  }
  SOK_RETURN_IF_ERROR(plan.status());
  SOK_ASSIGN_OR_RETURN(auto part, PartWriter::Create(files, PartPrefix(request.prefix, request.id, rank)));
  for (const TableToSave& table : tables) {
    const std::string& name = NameOf(table);
    const auto chain = plan.value().find(name);
    if (chain == plan.value().end()) {
      return FailedPrecondition("rank ", rank, " saves the table '", name, "', and rank 0 does not");
    }
    SOK_RETURN_IF_ERROR(WhileHeld(context, table.table, [&](HeldTable* held) -> Status {
      SOK_RETURN_IF_ERROR(PrepareTable(held, request, chain->second));
      return WriteTable(context.executor, held, held->options(), name, chain->second, request.apart,
                        part.get());
    }));
  }
  if (rank == 0) {
    std::set<std::string> chains;
    for (const auto& [name, chain] : plan.value()) {
      for (const ChainLink& link : chain) chains.insert(link.prefix);
    }
    const CheckpointFacts facts{request.id, tables[0].table->options().ranks, {chains.begin(), chains.end()}};
    SOK_RETURN_IF_ERROR(WriteFacts(facts, request.counted_by, part.get()));
  }
  SOK_RETURN_IF_ERROR(part->Finish());
  // On a shared disk, each machine syncs the names that it made. Rank 0 does when it gives the files their
  // own.
  return rank == 0 ? OkStatus() : files.SyncFolder(directory);
}

Status PlanTables(const EngineContext& context, Span<const TableToSave> tables, const SaveRequest& request) {
  SOK_RETURN_IF_ERROR(MakeFolders(*request.files, FolderOf(request.prefix)));
  OpenedCheckpoints opened(*request.files);
  SavePlan plan;
  for (const TableToSave& table : tables) {
    SOK_RETURN_IF_ERROR(WhileHeld(context, table.table, [&](HeldTable* held) {
      plan[NameOf(table)] = ChainFor(held, NameOf(table), request, &opened);
      return OkStatus();
    }));
  }
  return WriteSavePlan(request, plan);
}

}  // namespace

Status BeginCheckpoint(const EngineContext& context, Span<const TableToSave> tables,
                       const SaveRequest& request) {
  SOK_RETURN_IF_ERROR(CheckSave(request.prefix, request.id));
  if (tables[0].table->options().rank != 0) return OkStatus();
  return NamedSave(request.prefix, WithinMemory([&] { return PlanTables(context, tables, request); }));
}

Status WriteCheckpointPart(const EngineContext& context, Span<const TableToSave> tables,
                           const SaveRequest& request) {
  SOK_RETURN_IF_ERROR(CheckSave(request.prefix, request.id));
  return NamedSave(request.prefix, WithinMemory([&] { return WriteTables(context, tables, request); }));
}

std::string PrefixOfOthers(const SaveRequest& request) { return OthersPrefix(request.prefix, request.id); }

void AbandonCheckpoint(const SaveRequest& request) {
  if (!CheckSave(request.prefix, request.id).ok()) return;
  const Status ignored = WithinMemory([&] { return RemoveLeftovers(*request.files, request.prefix); });
  static_cast<void>(ignored);
}

Status EndTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request,
                          bool ok) {
  return WhileHeld(context, table, [&](HeldTable* held) {
    // After a failure the ranks may disagree about the last checkpoint, so the next one is full.
    ChainEnd end;
    if (ok && held->state().tracks_changes) end = ChainEnd{AbsolutePath(request.prefix), request.id};
    held->EndSave(ok, std::move(end));
    return OkStatus();
  });
}

}  // namespace sok
