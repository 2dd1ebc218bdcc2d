#include "cc/checkpoint/chain.h"

#include <filesystem>
#include <utility>

#include "cc/checkpoint/checkpoint_path.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

bool SameColumns(const SavedShard& a, const SavedShard& b) {
  for (const char* name : {"frequency", "last_step", "last_used"}) {
    if (a.arrays.count(name) != b.arrays.count(name)) return false;
  }
  return true;
}

// DataLoss unless both can be parts of one chain.
Status CheckTogether(const ChainedTable& first, const ChainedTable& next) {
  const Manifest& a = first.manifest;
  const Manifest& b = next.manifest;
  const std::string& path = next.path;
  if (a.shards.size() != b.shards.size() || a.table.options.name != b.table.options.name ||
      a.steps > b.steps || !SameColumns(a.shards.front(), b.shards.front()) ||
      a.table.options.dim != b.table.options.dim ||
      a.table.options.record.weights != b.table.options.record.weights ||
      a.table.options.use_hashtable != b.table.options.use_hashtable ||
      a.table.options.key_dtype != b.table.options.key_dtype ||
      a.table.options.placement != b.table.options.placement) {
    return DataLoss("'", path, "' is of another table than '", first.path, "', on which it builds");
  }
  const bool same = a.optimizer.has_value() == b.optimizer.has_value() &&
                    (!a.optimizer.has_value() || IsSameOptimizer(*a.optimizer, *b.optimizer));
  if (!same) {
    return DataLoss("'", path, "' has another optimizer than '", first.path, "', on which it builds");
  }
  if (b.optimizer.has_value() && b.optimizer->history.has_value() &&
      b.optimizer->history->first_step != a.optimizer->steps) {
    return DataLoss("'", path, "' has an optimizer's history from step ", b.optimizer->history->first_step,
                    " on, where '", first.path, "' ends at step ", a.optimizer->steps);
  }
  return OkStatus();
}

// Servers may take a table's first step after the first checkpoint of a chain.
void FillSlots(std::vector<ChainedTable>* chain) {
  const std::optional<SavedOptimizer>& optimizer = chain->back().manifest.optimizer;
  if (!optimizer.has_value()) return;
  for (ChainedTable& link : *chain) {
    if (link.manifest.apart && !link.manifest.optimizer.has_value()) link.manifest.FillSlots(*optimizer);
  }
}

Status CheckChain(const std::vector<ChainedTable>& chain) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const std::vector<ChainLink>& links = chain[i].manifest.chain;
    bool fits = links.size() == i && chain[i].manifest.delta == (i > 0);
    for (size_t j = 0; fits && j < i; ++j) fits = links[j].id == chain[j].id;
    if (!fits) {
      return DataLoss("'", chain[i].path, "' is not number ", i + 1, " of the chain of '", chain.back().path,
                      "'");
    }
    if (i > 0) SOK_RETURN_IF_ERROR(CheckTogether(chain.front(), chain[i]));
  }
  return OkStatus();
}

StatusOr<ChainedTable> ReadOne(const std::shared_ptr<SavedCheckpoint>& checkpoint, const std::string& name) {
  // A checkpoint without the table may have no tables, and no facts about them.
  SOK_ASSIGN_OR_RETURN(auto manifest, checkpoint->ReadTable(name));
  const std::string path = StrCat(checkpoint->index_path(), ":", name);
  if (manifest.is_foreign()) return ChainedTable{checkpoint, "", path, std::move(manifest)};
  SOK_ASSIGN_OR_RETURN(auto facts, checkpoint->ReadFacts());
  return ChainedTable{checkpoint, facts.id, path, std::move(manifest)};
}

// The checkpoint that the list of a folder calls the latest one; empty if it cannot be read.
std::string LatestIn(Files& files, const std::string& folder) {
  std::string list;
  constexpr int64_t kMaxList = int64_t{1} << 26;
  if (!ReadWholeFile(files, folder + "/checkpoint", kMaxList, &list).ok()) return "";
  const std::string begin = "model_checkpoint_path: \"";
  const size_t at = list.find(begin);
  if (at == std::string::npos) return "";
  const size_t first = at + begin.size();
  return (fs::path(folder) / list.substr(first, list.find('"', first) - first)).string();
}

// The chain of a table of another system: itself, or an increment of DeepRec's with all changes since the
// full checkpoint, which is the latest one in the folder above.
StatusOr<std::vector<ChainedTable>> ReadForeignChain(OpenedCheckpoints& opened, ChainedTable last,
                                                     const std::string& name) {
  std::vector<ChainedTable> chain;
  if (last.manifest.delta) {
    const std::string folder = FolderOf(FolderOf(AbsolutePath(last.checkpoint->prefix())));
    const std::string base = LatestIn(opened.files(), folder);
    if (base.empty()) {
      return NotFound("'", last.path, "' is an increment, but '", folder,
                      "/checkpoint' names no full checkpoint on which it builds");
    }
    SOK_ASSIGN_OR_RETURN(const auto below, opened.Get(base));
    SOK_ASSIGN_OR_RETURN(auto full, ReadOne(below, name));
    const Manifest& of_full = full.manifest;
    if (of_full.system != last.manifest.system || of_full.delta ||
        of_full.shards.size() != last.manifest.shards.size() ||
        of_full.table.options.dim != last.manifest.table.options.dim || of_full.steps > last.manifest.steps) {
      return DataLoss("'", last.path, "' is not an increment of '", full.path,
                      "': their parts, dims or global steps differ");
    }
    chain.push_back(std::move(full));
  }
  chain.push_back(std::move(last));
  return chain;
}

}  // namespace

StatusOr<std::vector<ChainedTable>> ReadChain(OpenedCheckpoints& opened, const std::string& prefix,
                                              const std::string& name, const std::string& id) {
  SOK_ASSIGN_OR_RETURN(const auto checkpoint, id.empty() ? opened.Get(prefix) : opened.GetBase(prefix, id));
  SOK_ASSIGN_OR_RETURN(auto last, ReadOne(checkpoint, name));
  std::vector<ChainedTable> chain;
  if (last.manifest.is_foreign()) return ReadForeignChain(opened, std::move(last), name);
  for (const ChainLink& link : last.manifest.chain) {
    const std::string base = (fs::path(FolderOf(prefix)) / link.prefix).lexically_normal().string();
    const auto below = opened.GetBase(base, link.id);
    auto read = below.ok() ? ReadOne(below.value(), name) : StatusOr<ChainedTable>(below.status());
    if (!read.ok()) {
      return Status(read.status().code(),
                    StrCat("'", last.path, "' builds on another checkpoint: ", read.status().message()));
    }
    chain.push_back(std::move(read.value()));
  }
  chain.push_back(std::move(last));
  FillSlots(&chain);
  SOK_RETURN_IF_ERROR(CheckChain(chain));
  return chain;
}

StatusOr<std::vector<ChainLink>> LinksTo(OpenedCheckpoints& opened, const std::vector<ChainedTable>& chain,
                                         const std::string& prefix) {
  const fs::path folder = FolderOf(prefix);
  std::vector<ChainLink> links;
  for (const ChainedTable& table : chain) {
    const fs::path base = AbsolutePath(table.checkpoint->prefix());
    const std::string relative = base.lexically_relative(AbsolutePath(folder.string())).string();
    // Not normalized: the operating system follows symbolic links, as it does for a reader of another path.
    SOK_RETURN_IF_ERROR(opened.GetBase((folder / relative).string(), table.id).status());
    links.push_back(ChainLink{relative, table.id});
  }
  return links;
}

}  // namespace sok
