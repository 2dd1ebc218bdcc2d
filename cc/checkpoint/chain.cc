#include "cc/checkpoint/chain.h"

#include <filesystem>
#include <utility>

#include "cc/checkpoint/checkpoint_path.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

bool SameSlots(const SavedOptimizer& a, const SavedOptimizer& b) {
  if (a.slots.size() != b.slots.size()) return false;
  for (size_t i = 0; i < a.slots.size(); ++i) {
    if (a.slots[i].name != b.slots[i].name || a.slots[i].width != b.slots[i].width) return false;
  }
  return true;
}

bool SameColumns(const SavedShard& a, const SavedShard& b) {
  for (const char* name : {"frequency", "last_step", "last_used"}) {
    if (a.arrays.count(name) != b.arrays.count(name)) return false;
  }
  return true;
}

// DataLoss unless both can be parts of one chain.
Status CheckTogether(const ReadCheckpoint& first, const ReadCheckpoint& next) {
  const Manifest& a = first.manifest;
  const Manifest& b = next.manifest;
  const std::string& path = next.path;
  if (a.shards.size() != b.shards.size() || a.table.options.name != b.table.options.name ||
      a.steps > b.steps || !SameColumns(a.shards.front(), b.shards.front()) ||
      a.table.options.dim != b.table.options.dim ||
      a.table.options.use_hashtable != b.table.options.use_hashtable ||
      a.table.options.key_dtype != b.table.options.key_dtype ||
      a.table.options.placement != b.table.options.placement) {
    return DataLoss("'", path, "' is of another table than '", first.path, "', on which it builds");
  }
  const bool same = a.optimizer.has_value() == b.optimizer.has_value() &&
                    (!a.optimizer.has_value() ||
                     (a.optimizer->name == b.optimizer->name && SameSlots(*a.optimizer, *b.optimizer)));
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

Status CheckChain(const std::vector<ReadCheckpoint>& chain) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const std::vector<ChainLink>& links = chain[i].manifest.chain;
    bool fits = links.size() == i && chain[i].manifest.delta == (i > 0);
    for (size_t j = 0; fits && j < i; ++j) fits = links[j].crc32 == chain[j].manifest_crc32;
    if (!fits) {
      return DataLoss("'", chain[i].path, "' is not number ", i + 1, " of the chain of '", chain.back().path,
                      "'");
    }
    if (i > 0) SOK_RETURN_IF_ERROR(CheckTogether(chain.front(), chain[i]));
  }
  return OkStatus();
}

}  // namespace

StatusOr<ReadCheckpoint> ReadCheckpointManifest(Files& files, const std::string& folder) {
  const std::string path = TableFile(files, folder, kManifestName);
  std::string bytes;
  SOK_RETURN_IF_ERROR(ReadWholeFile(files, path, kMaxManifestBytes, &bytes));
  auto manifest = ParseManifest(bytes, path);
  SOK_RETURN_IF_ERROR(manifest.status());
  return ReadCheckpoint{folder, path, Crc32(bytes), std::move(manifest.value())};
}

StatusOr<std::vector<ReadCheckpoint>> ReadChain(Files& files, const std::string& folder) {
  auto last = ReadCheckpointManifest(files, folder);
  SOK_RETURN_IF_ERROR(last.status());
  std::vector<ReadCheckpoint> chain;
  for (const ChainLink& link : last.value().manifest.chain) {
    const std::string path = (fs::path(folder) / link.path).lexically_normal().string();
    auto read = ReadCheckpointManifest(files, path);
    if (!read.ok()) {
      return Status(
          read.status().code(),
          StrCat("'", last.value().path, "' builds on another checkpoint: ", read.status().message()));
    }
    if (read.value().manifest_crc32 != link.crc32) {
      return DataLoss("'", read.value().path, "' is not the checkpoint on which '", last.value().path,
                      "' builds");
    }
    chain.push_back(std::move(read.value()));
  }
  chain.push_back(std::move(last.value()));
  SOK_RETURN_IF_ERROR(CheckChain(chain));
  return chain;
}

StatusOr<std::vector<ChainLink>> LinksTo(Files& files, const std::vector<ReadCheckpoint>& chain,
                                         const std::string& folder) {
  const fs::path from = AbsolutePath(folder);
  const fs::path directory = fs::path(folder).parent_path().parent_path();
  std::vector<ChainLink> links;
  for (const ReadCheckpoint& checkpoint : chain) {
    ChainLink link;
    link.path = fs::path(AbsolutePath(checkpoint.folder)).lexically_relative(from).string();
    link.crc32 = checkpoint.manifest_crc32;
    std::string bytes;
    // Not normalized: the operating system follows symbolic links, as it does for a reader of another path.
    const fs::path relative =
        fs::path(AbsolutePath(checkpoint.folder)).lexically_relative(AbsolutePath(directory.string()));
    const std::string there = (directory / relative).string();
    SOK_RETURN_IF_ERROR(
        ReadWholeFile(files, TableFile(files, there, kManifestName), kMaxManifestBytes, &bytes));
    if (Crc32(bytes) != link.crc32) return NotFound("'", there, "' is not '", checkpoint.folder, "'");
    links.push_back(std::move(link));
  }
  return links;
}

}  // namespace sok
