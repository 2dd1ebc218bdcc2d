#include "cc/checkpoint/table_checkpoint.h"

namespace sok {

Status BeginTableCheckpoint(const Table&, const SaveRequest&) { return Unimplemented("saving a table"); }
Status WriteTableShard(Executor&, Table*, const SaveRequest&) { return Unimplemented("saving a table"); }
StatusOr<std::string> PublishTableCheckpoint(Table*, const SaveRequest&) {
  return Unimplemented("saving a table");
}
void AbandonTableCheckpoint(const Table&, const SaveRequest&) {}
void EndTableCheckpoint(Table*, const SaveRequest&, bool) {}
StatusOr<std::unique_ptr<TableRestore>> TableRestore::Open(const std::string&, const std::string&,
                                                           const TableOptions&, const RestoreParts&) {
  return Unimplemented("restoring a table");
}
StatusOr<std::string> CompactCheckpoint(Executor&, const std::string&, const SaveRequest&) {
  return Unimplemented("compacting a checkpoint");
}

}  // namespace sok
