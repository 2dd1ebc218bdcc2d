#include "cuda/programs/benchmark/options.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

namespace sok {
namespace {

constexpr char kUsage[] =
    "usage: engine_benchmark [--OPTION=VALUE]...\n"
    "  --json=FILE          file for all numbers\n"
    "  --parts=LIST         some of index,rows,training,group,tiers\n"
    "  --dims=LIST          dims of rows and training (8,16,32,64,128,256)\n"
    "  --group_dims=LIST    dims of groups (16,64,128)\n"
    "  --ids=N              ids of a batch (1048576)\n"
    "  --keys=N             keys of the index (16000000)\n"
    "  --table_mb=N         records of a table, in MiB (4096)\n"
    "  --hotness=N          ids of a bag (10)\n"
    "  --rows=TYPE          float32, bfloat16 or float16 (float32)\n"
    "  --slots=TYPE         float32 or bfloat16 (float32)\n"
    "  --zipf=S             exponent of the skewed ids (1.05)\n"
    "  --rounds=N           measured rounds (15)\n"
    "  --seconds=N          no new table is begun after that (240)\n"
    "  --small              as little as possible, for runs on the host";

// Sizes that are feasible for kernels on the host.
void MakeSmall(BenchmarkOptions* options) {
  options->rounds = 2;
  options->ids = 300;
  options->dims = {8, 64};
  options->more_ids = {50};
  options->keys = 1000;
  options->table_bytes = 100'000;
  options->group_tables = 3;
  options->group_bags = 8;
  options->group_dims = {16};
  options->copied_bytes = 64 << 10;
  options->scrubbed_bytes = 4 << 10;
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(',', begin);
    parts.push_back(list.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return parts;
}

// Whether `text` is a number above 0.
bool TakeNumber(const std::string& text, double* number) {
  char* end = nullptr;
  *number = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && *number > 0;
}

bool TakeNumbers(const std::string& text, std::vector<int64_t>* numbers) {
  numbers->clear();
  for (const std::string& part : Split(text)) {
    double number = 0;
    if (!TakeNumber(part, &number)) return false;
    numbers->push_back(static_cast<int64_t>(number));
  }
  return true;
}

template <typename Number>
bool TakeInto(const std::string& text, Number* into) {
  double number = 0;
  if (!TakeNumber(text, &number)) return false;
  *into = static_cast<Number>(number);
  return true;
}

// One of the names of the first `known` types, of float32, bfloat16 and float16.
bool TakeType(const std::string& text, int known, FloatType* type) {
  constexpr FloatType kTypes[] = {FloatType::kFloat32, FloatType::kBfloat16, FloatType::kFloat16};
  for (int i = 0; i < known; ++i) {
    if (text == NameOf(kTypes[i])) *type = kTypes[i];
  }
  return text == NameOf(*type);
}

bool TakeParts(const std::string& text, std::vector<std::string>* parts) {
  const std::vector<std::string> known = *parts;
  *parts = Split(text);
  return std::all_of(parts->begin(), parts->end(), [&](const std::string& part) {
    return std::find(known.begin(), known.end(), part) != known.end();
  });
}

}  // namespace

bool BenchmarkOptions::Measures(const std::string& part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

StatusOr<BenchmarkOptions> ParseBenchmarkOptions(int argc, char** argv) {
  BenchmarkOptions options;
  int64_t table_mb = 0;
  const std::map<std::string, std::function<bool(const std::string&)>> takers = {
      {"--json", [&](const std::string& v) { return !(options.json = v).empty(); }},
      {"--parts", [&](const std::string& v) { return TakeParts(v, &options.parts); }},
      {"--dims", [&](const std::string& v) { return TakeNumbers(v, &options.dims); }},
      {"--group_dims", [&](const std::string& v) { return TakeNumbers(v, &options.group_dims); }},
      {"--ids", [&](const std::string& v) { return TakeInto(v, &options.ids); }},
      {"--keys", [&](const std::string& v) { return TakeInto(v, &options.keys); }},
      {"--table_mb", [&](const std::string& v) { return TakeInto(v, &table_mb); }},
      {"--hotness", [&](const std::string& v) { return TakeInto(v, &options.hotness); }},
      {"--zipf", [&](const std::string& v) { return TakeInto(v, &options.zipf); }},
      {"--rows", [&](const std::string& v) { return TakeType(v, 3, &options.record.weights); }},
      {"--slots", [&](const std::string& v) { return TakeType(v, 2, &options.record.slots); }},
      {"--rounds", [&](const std::string& v) { return TakeInto(v, &options.rounds); }},
      {"--seconds", [&](const std::string& v) { return TakeInto(v, &options.seconds); }},
  };
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string("--small")) MakeSmall(&options);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--small") continue;
    const size_t equals = argument.find('=');
    const auto taker = takers.find(argument.substr(0, equals));
    if (equals == std::string::npos || taker == takers.end() || !taker->second(argument.substr(equals + 1))) {
      return InvalidArgument("not understood: ", argument, "\n", kUsage);
    }
  }
  if (table_mb > 0) options.table_bytes = table_mb << 20;
  return options;
}

}  // namespace sok
