#include "sok_ops/kernels/group_attributes.h"

#include <algorithm>
#include <string>

namespace sok {

namespace tf = ::tensorflow;

namespace {

// Reads an attribute with one flag for each lookup. If it is empty, all flags are false.
tf::Status OptionalFlags(tf::OpKernelConstruction* construction, const char* name, size_t lookups,
                         std::vector<bool>* flags) {
  TF_RETURN_IF_ERROR(construction->GetAttr(name, flags));
  if (flags->empty()) flags->assign(lookups, false);
  return flags->size() == lookups
             ? tf::Status()
             : tf::errors::InvalidArgument("SokGroupLookup: `", name, "` has ", flags->size(), " flags for ",
                                           lookups, " lookups");
}

// The attributes that have one value for each lookup.
struct LookupAttributes {
  std::vector<int32_t> table_of;
  std::vector<std::string> layouts;
  std::vector<std::string> combiners;
  std::vector<bool> weighted;
  std::vector<int64_t> slots;
  std::vector<bool> positive_weights_only;
  std::vector<bool> placed;

  tf::Status Read(tf::OpKernelConstruction* construction) {
    TF_RETURN_IF_ERROR(construction->GetAttr("table_of", &table_of));
    TF_RETURN_IF_ERROR(construction->GetAttr("layouts", &layouts));
    TF_RETURN_IF_ERROR(construction->GetAttr("combiners", &combiners));
    TF_RETURN_IF_ERROR(construction->GetAttr("weighted", &weighted));
    TF_RETURN_IF_ERROR(construction->GetAttr("slots", &slots));
    const size_t lookups = layouts.size();
    if (table_of.size() != lookups || combiners.size() != lookups || weighted.size() != lookups ||
        slots.size() != lookups) {
      return tf::errors::InvalidArgument("SokGroupLookup: attributes of different lengths");
    }
    TF_RETURN_IF_ERROR(OptionalFlags(construction, "positive_weights_only", lookups, &positive_weights_only));
    return OptionalFlags(construction, "placed", lookups, &placed);
  }

  LookupSpec SpecOf(size_t l) const {
    LookupSpec spec;
    spec.layout = layouts[l] == "sparse"   ? IdLayout::kSparse
                  : layouts[l] == "ragged" ? IdLayout::kRagged
                                           : IdLayout::kDense;
    spec.table = table_of[l];
    spec.combiner = combiners[l] == "mean"    ? Combiner::kMean
                    : combiners[l] == "sqrtn" ? Combiner::kSqrtN
                                              : Combiner::kSum;
    spec.weighted = weighted[l];
    spec.positive_weights_only = positive_weights_only[l];
    return spec;
  }

  TensorSpec TensorsOf(size_t l) const {
    const int bags = layouts[l] == "dense" ? 0 : 1;
    return {slots[l], placed[l], bags + (placed[l] ? 1 : 0)};
  }

  tf::Status Check(size_t l, const LookupSpec& spec, int num_tables) const {
    if ((combiners[l] == "none") != spec.pooled() && (spec.pooled() || !spec.weighted) &&
        (spec.weighted || (!placed[l] && !spec.positive_weights_only)) && slots[l] >= 0 && spec.table >= 0 &&
        spec.table < num_tables) {
      return tf::Status();
    }
    return tf::errors::InvalidArgument(
        "SokGroupLookup: the attributes of lookup ", l, " do not fit each other: layout '", layouts[l],
        "', combiner '", combiners[l], "', weighted ", spec.weighted, ", positive_weights_only ",
        spec.positive_weights_only, ", placed ", placed[l], ", slots ", slots[l], ", table ", spec.table,
        " of ", num_tables);
  }
};

}  // namespace

int GroupAttributes::num_sparse() const {
  return static_cast<int>(std::count_if(
      specs.begin(), specs.end(), [](const LookupSpec& spec) { return spec.layout == IdLayout::kSparse; }));
}

tf::Status GroupAttributes::Read(tf::OpKernelConstruction* construction) {
  LookupAttributes lookups;
  int num_tables;
  int num_bags;
  int num_dense_shapes;
  int num_weights;
  TF_RETURN_IF_ERROR(lookups.Read(construction));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_tables", &num_tables));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_bags", &num_bags));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_sparse", &num_dense_shapes));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_weights", &num_weights));
  int bags_needed = 0;
  int weights_needed = 0;
  for (size_t l = 0; l < lookups.layouts.size(); ++l) {
    specs.push_back(lookups.SpecOf(l));
    tensors.push_back(lookups.TensorsOf(l));
    TF_RETURN_IF_ERROR(lookups.Check(l, specs[l], num_tables));
    bags_needed += tensors[l].bag_inputs;
    weights_needed += specs[l].weighted ? 1 : 0;
  }
  if (bags_needed != num_bags || num_sparse() != num_dense_shapes || weights_needed != num_weights) {
    return tf::errors::InvalidArgument("SokGroupLookup: ", num_bags, " bag inputs, ", num_dense_shapes,
                                       " dense shapes and ", num_weights, " weights, but the lookups need ",
                                       bags_needed, ", ", num_sparse(), " and ", weights_needed);
  }
  TF_RETURN_IF_ERROR(construction->GetAttr("dims", &dims));
  return layout.Read(construction, specs, dims);
}

}  // namespace sok
