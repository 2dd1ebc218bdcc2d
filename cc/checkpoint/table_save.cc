// Saving a table: see table_checkpoint.h.
#include <limits>
#include <utility>
#include <vector>

#include "cc/base/within_memory.h"
#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/save_notes.h"
#include "cc/checkpoint/save_stages.h"
#include "cc/checkpoint/shard_writer.h"
#include "cc/checkpoint/table_checkpoint.h"

namespace sok {
namespace {

const std::string& NameOf(const TableOptions& table, const SaveRequest& request) {
  return request.name.empty() ? table.name : request.name;
}

StatusOr<SavePaths> PathsOf(const TableOptions& table, const SaveRequest& request) {
  auto paths = SavePaths::Of(request.prefix, NameOf(table, request), request.id);
  if (paths.ok()) return paths;
  return Status(paths.status().code(), Named(table, paths.status()).message());
}

// Whether the optimizer's state can be told as a difference to that in the checkpoint that begins a chain.
bool OptimizerAllowsDelta(const Table& table, const Manifest& full) {
  const Optimizer* optimizer = table.optimizer();
  if (optimizer == nullptr || !full.optimizer.has_value()) {
    return optimizer == nullptr && !full.optimizer.has_value();
  }
  if (optimizer->name() != full.optimizer->name) return false;
  if (!optimizer->has_catch_up()) return true;
  return optimizer->can_save_lag() && optimizer->steps() <= std::numeric_limits<uint32_t>::max() &&
         optimizer->past_steps().first_step == full.optimizer->steps;
}

// Reading a longer chain takes longer than writing a full checkpoint costs.
constexpr size_t kMaxChain = 1000;

// The links of a delta of this table; none where it has to be a full checkpoint.
std::vector<ChainLink> ChainFor(const Table& table, const SaveRequest& request, const SavePaths& paths) {
  Files& files = *request.files;
  const Table::ChainEnd& end = table.chain_end();
  if (!table.tracks_changes() || end.folder.empty()) return {};
  const auto chain = ReadChain(files, end.folder);
  if (!chain.ok() || chain.value().back().manifest_crc32 != end.manifest_crc32) return {};
  if (chain.value().size() >= kMaxChain) return {};
  const Manifest& full = chain.value().front().manifest;
  if (full.table.options.name != NameOf(table.options(), request)) return {};
  const TableOptions& saved = full.table.options;
  if (saved.ranks != table.options().ranks || saved.placement != table.options().placement) return {};
  if (!OptimizerAllowsDelta(table, full)) return {};
  auto links = LinksTo(files, chain.value(), paths.folder, paths.unfinished);
  return links.ok() ? links.value() : std::vector<ChainLink>();
}

// What comes before a table is written.
Status PrepareTable(Executor& executor, Table* table, const SaveRequest& request, const SavePlan& plan) {
  if (table->options().use_hashtable) {
    int64_t evicted = 0;
    SOK_RETURN_IF_ERROR(table->EvictForSave(executor, &evicted));
  }
  if (plan.delta) {
    const Table::ChainEnd& end = table->chain_end();
    if (!table->tracks_changes() || end.manifest_crc32 != plan.chain.back().crc32) {
      return FailedPrecondition("its changes on rank ", table->options().rank,
                                " do not count from the checkpoint '", plan.chain.back().path,
                                "', as those of rank 0 do");
    }
  } else {
    table->SettleOptimizer(executor);
    if (request.delta) SOK_RETURN_IF_ERROR(table->TrackChanges());
  }
  table->BeginSave();
  return OkStatus();
}

SavedTable DescriptionOf(const Table& table, const SaveRequest& request) {
  SavedTable saved;
  saved.options = table.options();
  saved.options.name = NameOf(table.options(), request);
  saved.counts_global_steps = table.counts_global_steps();
  if (table.bloom() != nullptr) {
    saved.hashes = table.bloom()->hashes();
    saved.counters = table.bloom()->counters();
  }
  return saved;
}

Status BeginIn(const Table& table, const SaveRequest& request, const SavePaths& paths) {
  Files& files = *request.files;
  SOK_RETURN_IF_ERROR(MakeFolders(files, paths.parent));
  SOK_RETURN_IF_ERROR(files.MakeFolder(paths.unfinished));
  SavePlan plan;
  if (request.delta) plan.chain = ChainFor(table, request, paths);
  plan.delta = !plan.chain.empty();
  return WriteSavePlan(files, paths.unfinished, plan);
}

Status WriteIn(Executor& executor, Table* table, const SaveRequest& request, const SavePaths& paths) {
  Files& files = *request.files;
  const int rank = table->options().rank;
  const auto plan = ReadSavePlan(files, paths.unfinished);
  if (rank != 0 && plan.status().code() == StatusCode::kNotFound) {
    return NotFound("rank ", rank, " does not see what rank 0 has made in '", paths.parent,
                    "': a checkpoint needs a directory that all ranks share (", plan.status().message(), ")");
  }
  SOK_RETURN_IF_ERROR(plan.status());
  SOK_RETURN_IF_ERROR(PrepareTable(executor, table, request, plan.value()));
  auto shard = WriteShard(executor, files, paths.unfinished, *table, plan.value().delta);
  SOK_RETURN_IF_ERROR(shard.status());
  ShardNote note;
  note.table = DescriptionOf(*table, request);
  note.steps = table->steps();
  note.uses = table->uses();
  note.optimizer = OptimizerOf(*table, plan.value().delta);
  note.shard = std::move(shard.value());
  return WriteShardNote(files, paths.unfinished, rank, note);
}

// The manifest of the shards that all ranks have written.
StatusOr<Manifest> MergeNotes(Files& files, const SavePaths& paths, int shards) {
  const auto plan = ReadSavePlan(files, paths.unfinished);
  SOK_RETURN_IF_ERROR(plan.status());
  Manifest manifest;
  manifest.delta = plan.value().delta;
  manifest.chain = plan.value().chain;
  for (int shard = 0; shard < shards; ++shard) {
    auto note = ReadShardNote(files, paths.unfinished, shard);
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
  SOK_RETURN_IF_ERROR(WriteWholeFile(files, paths.unfinished + "/" + kManifestName, bytes));
  SOK_RETURN_IF_ERROR(RemoveNotes(files, paths.unfinished, shards));
  SOK_RETURN_IF_ERROR(files.SyncFolder(paths.unfinished));
  SOK_RETURN_IF_ERROR(files.Rename(paths.unfinished, paths.folder));
  SOK_RETURN_IF_ERROR(files.SyncFolder(paths.parent));
  return EncodeReference(Reference{paths.relative, Crc32(bytes), manifest.value().steps});
}

StatusOr<std::string> ReferenceTo(const SaveRequest& request, const SavePaths& paths) {
  const auto read = ReadCheckpointManifest(*request.files, paths.folder);
  SOK_RETURN_IF_ERROR(read.status());
  return EncodeReference(Reference{paths.relative, read.value().manifest_crc32, read.value().manifest.steps});
}

}  // namespace

Status Named(const TableOptions& table, const Status& status) {
  if (status.ok() || status.message().find("'" + table.name + "'") != std::string::npos) return status;
  return Status(status.code(), StrCat("Embedding variable '", table.name, "': ", status.message()));
}

StatusOr<std::string> PublishShards(const TableOptions& table, const SaveRequest& request) {
  const auto paths = PathsOf(table, request);
  SOK_RETURN_IF_ERROR(paths.status());
  auto reference =
      table.rank == 0 ? PublishIn(request, paths.value(), table.ranks) : ReferenceTo(request, paths.value());
  if (!reference.ok()) return Named(table, reference.status());
  return reference;
}

void AbandonShards(const TableOptions& table, const SaveRequest& request) {
  const auto paths = PathsOf(table, request);
  if (paths.ok() && table.rank == 0) RemoveTree(*request.files, paths.value().unfinished);
}

Status BeginTableCheckpoint(const Table& table, const SaveRequest& request) {
  const auto paths = PathsOf(table.options(), request);
  SOK_RETURN_IF_ERROR(paths.status());
  if (table.options().rank != 0) return OkStatus();
  return Named(table.options(), WithinMemory([&] { return BeginIn(table, request, paths.value()); }));
}

Status WriteTableShard(Executor& executor, Table* table, const SaveRequest& request) {
  const auto paths = PathsOf(table->options(), request);
  SOK_RETURN_IF_ERROR(paths.status());
  return Named(table->options(),
               WithinMemory([&] { return WriteIn(executor, table, request, paths.value()); }));
}

StatusOr<std::string> PublishTableCheckpoint(Table* table, const SaveRequest& request) {
  return PublishShards(table->options(), request);
}

void AbandonTableCheckpoint(const Table& table, const SaveRequest& request) {
  AbandonShards(table.options(), request);
}

void EndTableCheckpoint(Table* table, const SaveRequest& request, bool ok) {
  table->EndSave(ok);
  // After a failure the ranks may disagree about what the last checkpoint is: the next one is full.
  if (!ok) table->chain_end() = Table::ChainEnd();
  const auto paths = PathsOf(table->options(), request);
  if (!ok || !paths.ok()) return;
  Files& files = *request.files;
  const auto read = ReadCheckpointManifest(files, paths.value().folder);
  table->chain_end() = Table::ChainEnd();
  if (!read.ok()) return;
  if (table->tracks_changes()) {
    table->chain_end() = Table::ChainEnd{AbsolutePath(paths.value().folder), read.value().manifest_crc32};
  }
}

}  // namespace sok
