#include "sok_ops/kernels/group_attributes.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "sok_ops/kernels/tf_versions.h"

namespace sok {

namespace tf = ::tensorflow;

tf::Status OutputLayout::Read(tf::OpKernelConstruction* construction, const std::vector<LookupSpec>& specs,
                              const std::vector<int64_t>& dims) {
  std::vector<int64_t> beside;
  int num_outputs;
  TF_RETURN_IF_ERROR(construction->GetAttr("beside", &beside));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_outputs", &num_outputs));
  const int64_t lookups = static_cast<int64_t>(specs.size());
  if (beside.empty()) beside.assign(specs.size(), 1);
  begin_ = {0};
  for (const int64_t count : beside) {
    if (count < 1 || count > lookups - begin_.back()) break;
    begin_.push_back(begin_.back() + static_cast<int>(count));
  }
  if (begin_.size() != beside.size() + 1 || begin_.back() != lookups || this->num_outputs() != num_outputs) {
    return tf::errors::InvalidArgument(construction->def().op(), ": `beside` does not divide ", lookups,
                                       " lookups into ", num_outputs, " outputs of at least one lookup");
  }
  for (const LookupSpec& spec : specs) {
    if (spec.table >= static_cast<int>(dims.size())) {
      return tf::errors::InvalidArgument(construction->def().op(), ": a lookup is in table ", spec.table,
                                         " of ", dims.size());
    }
    tables_.push_back(spec.table);
    dims_.push_back(dims[spec.table]);
  }
  return tf::Status();
}

int64_t OutputLayout::Width(int o) const {
  return std::accumulate(dims_.begin() + begin_[o], dims_.begin() + begin_[o + 1], int64_t{0});
}

tf::Status OutputLayout::Shapes(const std::vector<tf::TensorShape>& of_lookups,
                                const std::vector<TableRef>& tables,
                                std::vector<tf::TensorShape>* shapes) const {
  for (int o = 0; o < num_outputs(); ++o) {
    const int first = begin_[o];
    tf::TensorShape shape = of_lookups[first];
    shape.RemoveLastDims(1);
    for (int l = first + 1; l < begin_[o + 1]; ++l) {
      tf::TensorShape other = of_lookups[l];
      other.RemoveLastDims(1);
      if (other == shape) continue;
      return tf::errors::InvalidArgument(
          "Lookup in embedding variable '", tables[tables_[l]].name(), "': its output of shape ",
          of_lookups[l].DebugString(), " cannot be concatenated with that of embedding variable '",
          tables[tables_[first]].name(), "', of shape ", of_lookups[first].DebugString());
    }
    TF_RETURN_WITH_CONTEXT_IF_ERROR(AddDim(Width(o), &shape), "\nLookup in embedding variable '",
                                    tables[tables_[first]].name(), "'");
    shapes->push_back(shape);
  }
  return tf::Status();
}

tf::Status AllocateOutputs(tf::OpKernelContext* context, const OutputLayout& layout,
                           const std::vector<tf::TensorShape>& shapes, const std::vector<TableRef>& tables,
                           std::vector<OutputRows>* rows) {
  for (int o = 0; o < layout.num_outputs(); ++o) {
    tf::Tensor* output = nullptr;
    TF_RETURN_WITH_CONTEXT_IF_ERROR(context->allocate_output(o, shapes[o], &output),
                                    "\nLookup in embedding variable '",
                                    tables[layout.table(layout.begin(o))].name(), "'");
    layout.AppendParts(o, output->flat<float>().data(), rows);
  }
  return tf::Status();
}

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
  std::vector<bool> packed;

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
    if (construction->HasAttr("packed")) {
      TF_RETURN_IF_ERROR(OptionalFlags(construction, "packed", lookups, &packed));
    } else {
      packed.assign(lookups, false);
    }
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
    if (lookups.packed[l]) continue;
    bags_needed += tensors[l].bag_inputs;
    weights_needed += specs[l].weighted ? 1 : 0;
  }
  packed = lookups.packed;
  if (bags_needed != num_bags || num_sparse() != num_dense_shapes || weights_needed != num_weights) {
    return tf::errors::InvalidArgument("SokGroupLookup: ", num_bags, " bag inputs, ", num_dense_shapes,
                                       " dense shapes and ", num_weights, " weights, but the lookups need ",
                                       bags_needed, ", ", num_sparse(), " and ", weights_needed);
  }
  TF_RETURN_IF_ERROR(construction->GetAttr("dims", &dims));
  return layout.Read(construction, specs, dims);
}

}  // namespace sok
