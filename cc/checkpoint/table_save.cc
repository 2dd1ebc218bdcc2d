// The stages of a save: see table_checkpoint.h.
#include <limits>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/save_notes.h"
#include "cc/checkpoint/shard_writer.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/table/bloom_filter.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

const std::string& NameOf(const TableOptions& table, const SaveRequest& request) {
  return request.name.empty() ? table.name : request.name;
}

StatusOr<SavePaths> PathsOf(const TableOptions& table, const SaveRequest& request) {
  auto paths = SavePaths::Of(request.prefix, NameOf(table, request), request.id);
  if (paths.ok()) return paths;
  return NamedError(table, paths.status());
}

// Whether the optimizer's state can be saved in a delta of the chain that begins with `full`.
bool OptimizerAllowsDelta(HeldTable* table, const Manifest& full) {
  const std::optional<HeldOptimizer> own = table->state().optimizer;
  if (!own.has_value() || !full.optimizer.has_value()) return !own.has_value() && !full.optimizer.has_value();
  if (own->name != full.optimizer->name) return false;
  const auto optimizer = MakeOptimizer(own->name);
  if (!optimizer.ok()) return false;
  if (!optimizer.value()->has_catch_up()) return true;
  if (!optimizer.value()->can_save_lag() || own->steps > std::numeric_limits<uint32_t>::max()) return false;
  PastSteps past;
  return table->ReadPastSteps(&past).ok() && past.first_step == full.optimizer->steps;
}

// Reading a longer chain would take longer than writing a full checkpoint.
constexpr size_t kMaxChain = 1000;

// The links of a delta of this table; empty if the checkpoint must be full.
std::vector<ChainLink> ChainFor(HeldTable* table, const SaveRequest& request, const SavePaths& paths) {
  Files& files = *request.files;
  const HeldState state = table->state();
  const ChainEnd& end = state.chain_end;
  if (!state.tracks_changes || end.folder.empty()) return {};
  const auto chain = ReadChain(files, end.folder);
  if (!chain.ok() || chain.value().back().manifest_crc32 != end.manifest_crc32) return {};
  if (chain.value().size() >= kMaxChain) return {};
  const Manifest& full = chain.value().front().manifest;
  const TableOptions& saved = full.table.options;
  const TableOptions& own = table->options();
  if (saved.name != NameOf(own, request)) return {};
  if (saved.ranks != own.ranks || saved.placement != own.placement) return {};
  if (!OptimizerAllowsDelta(table, full)) return {};
  auto links = LinksTo(files, chain.value(), paths.table);
  return links.ok() ? links.value() : std::vector<ChainLink>();
}

// Evicts rows and brings the table into the state to write.
Status PrepareTable(HeldTable* table, const SaveRequest& request, const SavePlan& plan) {
  if (table->options().use_hashtable) SOK_RETURN_IF_ERROR(table->EvictForSave());
  if (plan.delta) {
    const HeldState state = table->state();
    if (!state.tracks_changes || state.chain_end.manifest_crc32 != plan.chain.back().crc32) {
      return FailedPrecondition("rank ", table->options().rank,
                                " does not track changes since the checkpoint '", plan.chain.back().path,
                                "', as rank 0 does");
    }
  } else {
    SOK_RETURN_IF_ERROR(table->SettleOptimizer());
    if (request.delta) SOK_RETURN_IF_ERROR(table->TrackChanges());
  }
  return table->BeginSave();
}

SavedTable DescriptionOf(const TableOptions& options, const TableClock& clock, const SaveRequest& request) {
  SavedTable saved;
  saved.options = options;
  saved.options.name = NameOf(options, request);
  saved.counts_global_steps = clock.counts_global_steps;
  const Admission& admission = options.admission;
  if (admission.kind == Admission::Kind::kBloom) {
    const BloomShape shape = BloomShape::Of(admission.max_element_size, admission.false_positive_probability);
    saved.hashes = shape.hashes;
    saved.counters = shape.counters;
    saved.counters_in_blocks = BloomShape::IsInBlocks(shape, admission.counter_bits);
  }
  return saved;
}

Status BeginIn(HeldTable* table, const SaveRequest& request, const SavePaths& paths) {
  Files& files = *request.files;
  SOK_RETURN_IF_ERROR(MakeFolders(files, paths.directory));
  SavePlan plan;
  if (request.delta) plan.chain = ChainFor(table, request, paths);
  plan.delta = !plan.chain.empty();
  return WriteSavePlan(files, paths.table, plan);
}

Status WriteIn(Executor& executor, HeldTable* table, const SaveRequest& request, const SavePaths& paths) {
  Files& files = *request.files;
  const int rank = table->options().rank;
  const auto plan = ReadSavePlan(files, paths.table);
  if (rank != 0 && plan.status().code() == StatusCode::kNotFound) {
    return NotFound("rank ", rank, " does not see what rank 0 made in '", paths.directory,
                    "': a checkpoint needs a directory that all ranks share (", plan.status().message(), ")");
  }
  SOK_RETURN_IF_ERROR(plan.status());
  SOK_RETURN_IF_ERROR(PrepareTable(table, request, plan.value()));
  auto shard = WriteShard(executor, files, paths.table, table, plan.value().delta);
  SOK_RETURN_IF_ERROR(shard.status());
  auto optimizer = SavedOptimizerOf(table, plan.value().delta);
  SOK_RETURN_IF_ERROR(optimizer.status());
  const TableClock clock = table->state().clock;
  ShardNote note;
  note.table = DescriptionOf(table->options(), clock, request);
  note.steps = clock.steps;
  note.uses = clock.uses;
  note.optimizer = std::move(optimizer.value());
  note.shard = std::move(shard.value());
  // On a shared disk, each machine syncs the names that it made.
  SOK_RETURN_IF_ERROR(files.SyncFolder(paths.directory));
  return WriteShardNote(files, paths.table, rank, note);
}

// The manifest of the shards of all ranks.
StatusOr<Manifest> MergeNotes(Files& files, const SavePaths& paths, int shards) {
  const auto plan = ReadSavePlan(files, paths.table);
  SOK_RETURN_IF_ERROR(plan.status());
  Manifest manifest;
  manifest.delta = plan.value().delta;
  manifest.chain = plan.value().chain;
  for (int shard = 0; shard < shards; ++shard) {
    auto note = ReadShardNote(files, paths.table, shard);
    SOK_RETURN_IF_ERROR(note.status());
    if (shard == 0) {
      manifest.table = note.value().table;
      manifest.steps = note.value().steps;
      manifest.uses = note.value().uses;
      manifest.optimizer = note.value().optimizer;
    }
    if (note.value().steps != manifest.steps) {
      return FailedPrecondition("rank ", shard, " has taken ", note.value().steps, " steps, rank 0 ",
                                manifest.steps);
    }
    manifest.rows += note.value().shard.table_rows;
    manifest.shards.push_back(std::move(note.value().shard));
  }
  return manifest;
}

StatusOr<std::string> PublishIn(const SaveRequest& request, const SavePaths& paths, int shards) {
  Files& files = *request.files;
  const auto manifest = MergeNotes(files, paths, shards);
  SOK_RETURN_IF_ERROR(manifest.status());
  const std::string bytes = EncodeManifest(manifest.value());
  const std::string unfinished = TableFile(files, paths.table, kUnfinishedManifest);
  SOK_RETURN_IF_ERROR(WriteWholeFile(files, unfinished, bytes));
  SOK_RETURN_IF_ERROR(RemoveNotes(files, paths.table, shards));
  SOK_RETURN_IF_ERROR(files.SyncFolder(paths.directory));
  SOK_RETURN_IF_ERROR(files.Rename(unfinished, TableFile(files, paths.table, kManifestName)));
  SOK_RETURN_IF_ERROR(files.SyncFolder(paths.directory));
  return EncodeReference(Reference{paths.relative, Crc32(bytes), manifest.value().steps});
}

StatusOr<std::string> ReferenceTo(const SaveRequest& request, const SavePaths& paths) {
  const auto read = ReadCheckpointManifest(*request.files, paths.table);
  SOK_RETURN_IF_ERROR(read.status());
  return EncodeReference(Reference{paths.relative, read.value().manifest_crc32, read.value().manifest.steps});
}

// Returns work(held); errors name the variable.
template <typename Work>
Status WhileHeld(const EngineContext& context, EngineTable* table, const Work& work) {
  const auto held = table->Hold(context);
  SOK_RETURN_IF_ERROR(held.status());
  return NamedError(table->options(), WithinMemory([&] { return work(held.value().get()); }));
}

}  // namespace

StatusOr<std::string> PublishTableCheckpoint(const TableOptions& table, const SaveRequest& request) {
  const auto paths = PathsOf(table, request);
  SOK_RETURN_IF_ERROR(paths.status());
  auto reference =
      table.rank == 0 ? PublishIn(request, paths.value(), table.ranks) : ReferenceTo(request, paths.value());
  if (!reference.ok()) return NamedError(table, reference.status());
  return reference;
}

void AbandonTableCheckpoint(const TableOptions& table, const SaveRequest& request) {
  const auto paths = PathsOf(table, request);
  if (paths.ok() && table.rank == 0) RemoveTableFiles(*request.files, paths.value().table);
}

Status BeginTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request) {
  const auto paths = PathsOf(table->options(), request);
  SOK_RETURN_IF_ERROR(paths.status());
  if (table->options().rank != 0) return OkStatus();
  return WhileHeld(context, table, [&](HeldTable* held) { return BeginIn(held, request, paths.value()); });
}

Status WriteTableShard(const EngineContext& context, EngineTable* table, const SaveRequest& request) {
  const auto paths = PathsOf(table->options(), request);
  SOK_RETURN_IF_ERROR(paths.status());
  return WhileHeld(context, table,
                   [&](HeldTable* held) { return WriteIn(context.executor, held, request, paths.value()); });
}

Status EndTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request,
                          bool ok) {
  const auto paths = PathsOf(table->options(), request);
  return WhileHeld(context, table, [&](HeldTable* held) {
    // After a failure the ranks may disagree about the last checkpoint, so the next one is full.
    ChainEnd end;
    if (ok && paths.ok() && held->state().tracks_changes) {
      const auto read = ReadCheckpointManifest(*request.files, paths.value().table);
      if (read.ok()) end = ChainEnd{AbsolutePath(paths.value().table), read.value().manifest_crc32};
    }
    held->EndSave(ok, std::move(end));
    return OkStatus();
  });
}

}  // namespace sok
