#include <utility>

#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/file_error.h"
#include "cc/checkpoint/save_stages.h"
#include "cc/checkpoint/table_checkpoint.h"

namespace sok {
namespace {

// The table of one shard.
StatusOr<std::unique_ptr<Table>> LoadShard(Executor& executor, const std::string& folder,
                                           const TableOptions& options, Files* files) {
  RestoreParts parts;
  parts.files = files;
  auto restore = TableRestore::Open(folder, folder, options, parts);
  SOK_RETURN_IF_ERROR(restore.status());
  auto table = Table::Create(executor, restore.value()->options());
  SOK_RETURN_IF_ERROR(table.status());
  SOK_RETURN_IF_ERROR(restore.value()->Load(executor, table.value().get()));
  return table;
}

Status WriteShards(Executor& executor, const std::string& folder, TableOptions options,
                   const SaveRequest& request) {
  for (int shard = 0; shard < options.ranks; ++shard) {
    options.rank = shard;
    auto table = LoadShard(executor, folder, options, request.files);
    SOK_RETURN_IF_ERROR(table.status());
    if (shard == 0) SOK_RETURN_IF_ERROR(BeginTableCheckpoint(*table.value(), request));
    SOK_RETURN_IF_ERROR(WriteTableShard(executor, table.value().get(), request));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> CompactCheckpoint(Executor& executor, const std::string& folder,
                                        const SaveRequest& request) {
  if (request.delta) return InvalidArgument("What '", folder, "' is made into is a full checkpoint");
  SOK_RETURN_IF_ERROR(CheckPath(folder));
  const std::string from = AbsolutePath(folder);
  auto read = ReadCheckpointManifest(*request.files, from);
  SOK_RETURN_IF_ERROR(read.status());
  TableOptions options = read.value().manifest.table.options;
  const Status status = WriteShards(executor, from, options, request);
  auto reference = status.ok() ? PublishShards(options, request) : StatusOr<std::string>(status);
  if (!reference.ok()) AbandonShards(options, request);
  return reference;
}

}  // namespace sok
