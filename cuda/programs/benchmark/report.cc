#include "cuda/programs/benchmark/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cuda/programs/benchmark/cases.h"

namespace sok {
namespace {

using JsonValue = nlohmann::ordered_json;

double GigabytesPerSecond(const Case& measured) {
  return measured.ms.median > 0 ? measured.bytes / measured.ms.median / 1e6 : 0;
}

// The bounds measured in the same rounds as the cases.
struct Bounds {
  double copy = 0;
  double read = 0;

  // Stores a case if it is a bound.
  void Take(const Case& measured) {
    if (measured.what == kCopy) copy = GigabytesPerSecond(measured);
    if (measured.what == kRead) read = GigabytesPerSecond(measured);
  }
};

JsonValue JsonOf(const Quartiles& ms) {
  return {
      {"median", ms.median}, {"first_quartile", ms.first}, {"third_quartile", ms.third}, {"least", ms.least},
      {"most", ms.most},     {"rounds", ms.values},        {"outliers", ms.outliers}};
}

JsonValue JsonOf(const Case& measured, const Bounds& bounds) {
  JsonValue json = {{"what", measured.what}, {"ms", JsonOf(measured.ms)}};
  const double gb_per_s = GigabytesPerSecond(measured);
  json["bytes"] = measured.bytes;
  json["gb_per_s"] = gb_per_s;
  if (measured.ids == 0) return json;
  json["ids_drawn"] = measured.ids_drawn;
  if (!measured.optimizer.empty()) json["optimizer"] = measured.optimizer;
  json["dim"] = measured.dim;
  json["load"] = measured.load;
  json["ids_per_bag"] = measured.hotness;
  json["ids"] = measured.ids;
  json["distinct_per_id"] = measured.unique;
  json["ids_per_s"] = measured.ms.median > 0 ? measured.ids / measured.ms.median * 1e3 : 0;
  json["bytes_per_id"] = measured.bytes / measured.ids;
  json["copy_gb_per_s"] = bounds.copy;
  json["read_gb_per_s"] = bounds.read;
  json["share_of_copy"] = bounds.copy > 0 ? gb_per_s / bounds.copy : 0;
  return json;
}

JsonValue JsonOf(const DeviceInfo& device, const std::string& processor) {
  return {{"device", device.name},
          {"compute_capability", std::to_string(device.major) + "." + std::to_string(device.minor)},
          {"multiprocessors", device.multiprocessors},
          {"clock_khz", device.clock_khz},
          {"memory_clock_khz", device.memory_clock_khz},
          {"memory_bus_bits", device.memory_bus_bits},
          {"cache_bytes", device.cache_bytes},
          {"memory_bytes", device.total_bytes},
          {"driver", device.driver},
          {"runtime", device.runtime},
          {"processor", processor}};
}

JsonValue JsonOf(const BenchmarkOptions& options) {
  return {{"rounds", options.rounds},
          {"ids", options.ids},
          {"more_ids", options.more_ids},
          {"dims", options.dims},
          {"keys", options.keys},
          {"table_bytes", options.table_bytes},
          {"hotness", options.hotness},
          {"zipf", options.zipf},
          {"group_tables", options.group_tables},
          {"group_bags", options.group_bags},
          {"group_dims", options.group_dims},
          {"copied_bytes", options.copied_bytes},
          {"scrubbed_bytes", options.scrubbed_bytes},
          {"seconds", options.seconds},
          {"rows", NameOf(options.record.weights)},
          {"slots", NameOf(options.record.slots)},
          {"parts", options.parts}};
}

std::string LineOf(const Case& measured, const Bounds& bounds) {
  const double gb_per_s = GigabytesPerSecond(measured);
  const double spread =
      measured.ms.median > 0 ? (measured.ms.third - measured.ms.first) / measured.ms.median : 0;
  char line[256];
  if (measured.ids == 0) {
    std::snprintf(
        line, sizeof(line),
        "| %-15s |           |              |     |      |      | %9.3f | %4.0f%% | %d/%d | |  | %7.1f | |\n",
        measured.what.c_str(), measured.ms.median, 100 * spread, measured.ms.outliers, measured.ms.values,
        gb_per_s);
    return line;
  }
  std::snprintf(line, sizeof(line),
                "| %-15s | %-9s | %-12s | %3d | %4.2f | %4.1f | %9.3f | %4.0f%% | %d/%d | %6.3f | %6.0f | "
                "%7.1f | %4.0f%% |\n",
                measured.what.c_str(), measured.optimizer.c_str(), measured.ids_drawn.c_str(),
                static_cast<int>(measured.dim), measured.load, measured.hotness, measured.ms.median,
                100 * spread, measured.ms.outliers, measured.ms.values,
                measured.ids / measured.ms.median / 1e6, measured.bytes / measured.ids, gb_per_s,
                bounds.copy > 0 ? 100 * gb_per_s / bounds.copy : 0);
  return line;
}

}  // namespace

std::string BenchmarkReport::Table() const {
  std::string table =
      "| what | optimizer | ids | dim | load | ids per bag | ms | middle half | outliers | G ids/s | bytes "
      "per id "
      "| GB/s | of copy |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  Bounds bounds;
  for (const Case& measured : cases) {
    bounds.Take(measured);
    table += LineOf(measured, bounds);
  }
  for (const std::string& what : left_out) table += "left out: " + what + "\n";
  if (device.is_host)
    table += "The kernels ran on the host: times, and what follows from them, mean nothing.\n";
  return table;
}

std::string BenchmarkReport::Json() const {
  JsonValue json = {{"program", "engine_benchmark"},
                    {"format", 1},
                    {"device", device.is_host ? "host" : "gpu"},
                    {"machine", JsonOf(device, machine)},
                    {"options", JsonOf(options)}};
  Bounds bounds;
  json["cases"] = JsonValue::array();
  for (const Case& measured : cases) {
    bounds.Take(measured);
    json["cases"].push_back(JsonOf(measured, bounds));
  }
  json["left_out"] = left_out;
  return json.dump(1) + "\n";
}

}  // namespace sok
