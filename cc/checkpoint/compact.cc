#include <utility>

#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/file_error.h"
#include "cc/checkpoint/table_checkpoint.h"

namespace sok {
namespace {

// Loads one shard into a new table.
StatusOr<std::shared_ptr<EngineTable>> LoadShard(const EngineContext& context, Engine* engine,
                                                 const std::string& folder, const TableOptions& options,
                                                 Files* files) {
  RestoreParts parts;
  parts.files = files;
  auto restore = TableRestore::Open(folder, folder, options, parts);
  SOK_RETURN_IF_ERROR(restore.status());
  return restore.value()->Load(context, engine);
}

Status WriteShards(const EngineContext& context, Engine* engine, const std::string& folder,
                   TableOptions options, const SaveRequest& request) {
  for (int shard = 0; shard < options.ranks; ++shard) {
    options.rank = shard;
    const auto table = LoadShard(context, engine, folder, options, request.files);
    SOK_RETURN_IF_ERROR(table.status());
    if (shard == 0) SOK_RETURN_IF_ERROR(BeginTableCheckpoint(context, table.value().get(), request));
    SOK_RETURN_IF_ERROR(WriteTableShard(context, table.value().get(), request));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> CompactCheckpoint(const EngineContext& context, Engine* engine,
                                        const std::string& folder, const SaveRequest& request) {
  if (request.delta) return InvalidArgument("'", folder, "' can be compacted into a full checkpoint only");
  SOK_RETURN_IF_ERROR(CheckPath(folder));
  const std::string from = AbsolutePath(folder);
  auto read = ReadCheckpointManifest(*request.files, from);
  SOK_RETURN_IF_ERROR(read.status());
  TableOptions options = read.value().manifest.table.options;
  const Status status = WriteShards(context, engine, from, options, request);
  auto reference = status.ok() ? PublishTableCheckpoint(options, request) : StatusOr<std::string>(status);
  if (!reference.ok()) AbandonTableCheckpoint(options, request);
  return reference;
}

}  // namespace sok
