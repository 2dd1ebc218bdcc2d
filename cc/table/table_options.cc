#include "cc/table/table_options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "cc/base/hash.h"
#include "cc/table/bloom_filter.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

const char* NameOf(InitializerKind kind) {
  switch (kind) {
    case InitializerKind::kConstant:
      return "constant";
    case InitializerKind::kUniform:
      return "uniform";
    case InitializerKind::kNormal:
      return "normal";
    case InitializerKind::kTruncatedNormal:
      return "truncated_normal";
    case InitializerKind::kGiven:
      return "given";
  }
  return "unknown";
}

Status CheckAdmission(const Admission& admission) {
  if (admission.kind == Admission::Kind::kNone) return OkStatus();
  if (admission.filter_freq < 0) {
    return InvalidArgument("filter_freq must not be negative, but is ", admission.filter_freq);
  }
  if (!std::isfinite(admission.default_value)) {
    return InvalidArgument("default_value_no_permission must be finite, not ", admission.default_value);
  }
  if (admission.kind != Admission::Kind::kBloom) return OkStatus();
  SOK_RETURN_IF_ERROR(BloomShape::Check(admission.max_element_size, admission.false_positive_probability,
                                        admission.counter_bits));
  const int64_t most = BloomShape::MaxCount(admission.counter_bits);
  if (admission.filter_freq > most) {
    return InvalidArgument("counters of ", admission.counter_bits, " bits count only to ", most,
                           ", but filter_freq is ", admission.filter_freq);
  }
  return OkStatus();
}

Status CheckEviction(const Eviction& eviction) {
  if (eviction.kind == Eviction::Kind::kGlobalStep && eviction.steps_to_live < 1) {
    return InvalidArgument("steps_to_live must be at least 1, not ", eviction.steps_to_live);
  }
  if (eviction.kind == Eviction::Kind::kL2Weight &&
      !(eviction.l2_weight_threshold >= 0.0f && std::isfinite(eviction.l2_weight_threshold))) {
    return InvalidArgument("l2_weight_threshold must be finite and not negative, but is ",
                           eviction.l2_weight_threshold);
  }
  return OkStatus();
}

// The rows of all ranks are one variable; its number of bytes must fit an int64.
Status CheckAddressable(const TableOptions& options) {
  constexpr int64_t kMostFloats = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(float));
  if (options.capacity <= kMostFloats / options.ranks / options.dim) return OkStatus();
  return InvalidArgument("capacity ", options.capacity, " on each of ", options.ranks,
                         " ranks, with rows of ", options.dim, " floats, is more than 2^63 bytes");
}

// A row must not start with inf or NaN. The generator's normal draws stay within nine standard deviations.
Status CheckInitializer(const Initializer& initializer) {
  const double a = std::fabs(static_cast<double>(initializer.a));
  const double b = std::fabs(static_cast<double>(initializer.b));
  double largest = std::isnan(b) ? b : std::fmax(a, b);
  if (initializer.kind == InitializerKind::kConstant) largest = a;
  if (initializer.kind == InitializerKind::kNormal) largest = a + 9.0 * b;
  if (initializer.kind == InitializerKind::kTruncatedNormal) largest = a + 2.0 * b;
  if (initializer.kind == InitializerKind::kGiven && initializer.rows == 0) {
    return InvalidArgument("there must be at least one initial row");
  }
  if (!std::isnan(a) && largest <= std::numeric_limits<float>::max()) return OkStatus();
  return InvalidArgument("initial values ", NameOf(initializer.kind), "(", initializer.a, ", ", initializer.b,
                         ") must be finite floats");
}

Status CheckGiven(const TableOptions& options) {
  const std::vector<float>& given = options.initial_rows;
  const int64_t rows = options.initializer.kind == InitializerKind::kGiven ? options.initializer.rows : 0;
  if (static_cast<int64_t>(given.size()) != rows * options.dim) {
    return InvalidArgument(given.size(), " floats as ", rows, " initial rows of ", options.dim);
  }
  const auto bad =
      std::find_if(given.begin(), given.end(), [](float value) { return !std::isfinite(value); });
  if (bad == given.end()) return OkStatus();
  const int64_t at = bad - given.begin();
  return InvalidArgument("initial rows must be finite, but the value in row ", at / options.dim, ", column ",
                         at % options.dim, " is ", *bad);
}

Status Check(const TableOptions& options) {
  if (options.dim < 1 || options.dim > TableOptions::kMaxDim) {
    return InvalidArgument("dim must be in [1, ", TableOptions::kMaxDim, "], not ", options.dim);
  }
  if (options.capacity < 0) {
    return InvalidArgument("capacity must not be negative, but is ", options.capacity);
  }
  const bool describes = options.rank == kNoRank;
  if (options.ranks < 1 || (options.rank < 0 && !describes) || options.rank >= options.ranks) {
    return InvalidArgument("rank ", options.rank, " of ", options.ranks);
  }
  if (describes && options.placement.is_replicated()) {
    return InvalidArgument("only ranks can look up in replicas, of which each has its own");
  }
  SOK_RETURN_IF_ERROR(options.placement.Check(options.ranks));
  SOK_RETURN_IF_ERROR(CheckAddressable(options));
  SOK_RETURN_IF_ERROR(CheckInitializer(options.initializer));
  if (!options.use_hashtable) {
    if (options.capacity == 0) return InvalidArgument("use_hashtable=False needs a capacity");
    SOK_RETURN_IF_ERROR(options.placement.CheckStatic(options.ranks, options.capacity));
    if (options.on_full != OnFull::kError || options.admission.kind != Admission::Kind::kNone ||
        options.eviction.kind != Eviction::Kind::kNone) {
      return InvalidArgument(
          "use_hashtable=False, with a row for every key, allows no admission or eviction");
    }
  }
  if (options.on_full != OnFull::kError && options.capacity == 0) {
    return InvalidArgument("on_full=\"", NameOf(options.on_full), "\" needs a capacity");
  }
  if (options.tiers.memory_bytes < 0) {
    return InvalidArgument("memory for rows must not be negative, but is ", options.tiers.memory_bytes,
                           " bytes");
  }
  SOK_RETURN_IF_ERROR(CheckAdmission(options.admission));
  return CheckEviction(options.eviction);
}

constexpr uint64_t kLowerHalf = UINT32_MAX;

std::ostringstream TextOfOptions() {
  std::ostringstream text;
  // Enough digits to distinguish any two floats.
  text.precision(std::numeric_limits<float>::max_digits10);
  return text;
}

void DescribeShape(const TableOptions& options, std::ostream& text) {
  text << "'" << options.name << "' of dim " << options.dim << ", ";
  if (options.capacity > 0) {
    text << "capacity " << options.capacity;
  } else {
    text << "no bound";
  }
  text << ", " << (options.use_hashtable ? "hashed" : "direct") << " " << options.key_dtype << " keys";
}

void DescribeInitialRows(const TableOptions& options, std::ostream& text) {
  if (options.rank == kNoRank) {
    text << "any initial values";
    return;
  }
  const Initializer& initializer = options.initializer;
  if (initializer.kind == InitializerKind::kGiven) {
    // Different rows must have different descriptions.
    const std::vector<float>& given = options.initial_rows;
    const char* bytes = reinterpret_cast<const char*>(given.data());
    text << initializer.rows << " given initial rows, which begin with " << given[0] << ", of fingerprint "
         << Fingerprint64(std::string_view(bytes, given.size() * sizeof(float)));
    return;
  }
  text << "initial values " << NameOf(initializer.kind) << "(";
  text << initializer.a;
  if (initializer.kind != InitializerKind::kConstant) text << ", " << initializer.b;
  text << ") of seed " << initializer.seed;
  if (initializer.rows > 0) text << " in " << initializer.rows << " rows";
}

// Describes the other options, those that differ from the defaults.
void DescribePolicies(const TableOptions& options, std::ostream& text) {
  const Admission& admission = options.admission;
  if (options.on_full != OnFull::kError) text << ", on_full " << NameOf(options.on_full);
  if (admission.kind != Admission::Kind::kNone) {
    text << ", admitted by " << (admission.kind == Admission::Kind::kBloom ? "CBFFilter" : "CounterFilter")
         << "(" << admission.filter_freq;
    if (admission.kind == Admission::Kind::kBloom) {
      text << ", " << admission.max_element_size << ", " << admission.false_positive_probability << ", "
           << admission.counter_bits << " bits";
    }
    text << ") with default " << admission.default_value;
    if (admission.before_lookup) text << " in the lookup that admits";
  }
  if (options.eviction.kind == Eviction::Kind::kGlobalStep) {
    text << ", evicted by GlobalStepEvict(" << options.eviction.steps_to_live << ")";
  }
  if (options.eviction.kind == Eviction::Kind::kL2Weight) {
    text << ", evicted by L2WeightEvict(" << options.eviction.l2_weight_threshold << ")";
  }
  if (options.placement != Placement()) text << ", placed as " << options.placement.Text();
  const RecordFormat& record = options.record;
  if (!record.is_float32()) {
    text << ", rows in " << NameOf(record.weights) << ", slots in " << NameOf(record.slots) << ", rounded "
         << (record.rounding == Rounding::kNearest ? "to nearest" : "stochastically");
  }
  if (options.memory != RowMemory::kDevice) text << ", rows in memory of the " << NameOf(options.memory);
}

// Of everything that Describe says but initial rows, in the lower half.
uint64_t FingerprintOfOthers(const TableOptions& options) {
  std::ostringstream text = TextOfOptions();
  DescribeShape(options, text);
  DescribePolicies(options, text);
  return Fingerprint64(text.str()) & kLowerHalf;
}

}  // namespace

const char* NameOf(OnFull on_full) {
  switch (on_full) {
    case OnFull::kError:
      return "error";
    case OnFull::kEvictLru:
      return "evict_lru";
    case OnFull::kEvictLfu:
      return "evict_lfu";
  }
  return "unknown";
}

const char* NameOf(RowMemory memory) {
  switch (memory) {
    case RowMemory::kDevice:
      return "device";
    case RowMemory::kHost:
      return "host";
  }
  return "unknown";
}

Status CheckOptions(const TableOptions& options) { return NamedError(options, Check(options)); }

Status CheckGivenRows(const TableOptions& options) { return NamedError(options, CheckGiven(options)); }

std::string Describe(const TableOptions& options) {
  std::ostringstream text = TextOfOptions();
  DescribeShape(options, text);
  text << ", ";
  DescribeInitialRows(options, text);
  DescribePolicies(options, text);
  return text.str();
}

uint64_t DefinitionFingerprint(const TableOptions& options) {
  const uint64_t lower = FingerprintOfOthers(options);
  if (options.rank == kNoRank) return lower;
  std::ostringstream initial_rows = TextOfOptions();
  DescribeInitialRows(options, initial_rows);
  // Not 0, which stands for any initial rows.
  return lower | (Fingerprint64(initial_rows.str()) << 32) | (uint64_t{1} << 63);
}

bool HoldTheSameKeys(const TableOptions& one, const TableOptions& other) {
  return one.rank == other.rank && one.ranks == other.ranks &&
         FingerprintOfOthers(one) == FingerprintOfOthers(other);
}

bool DefinitionsAgree(uint64_t one, uint64_t other) {
  const uint64_t differ = one ^ other;
  return differ == 0 || ((differ & kLowerHalf) == 0 && (one <= kLowerHalf || other <= kLowerHalf));
}

}  // namespace sok
