// A pass over graphs whose ops have devices: the ids that a lookup on a GPU takes from the host cross in one
// copy. Lookups whose tensors come from the GPU, or from another process, stay as they are. Results do not
// change.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sok_ops/kernels/placed_graph.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// Ops that take ids, and those that take them packed.
const std::map<std::string, std::string>& PackedOps() {
  static const auto& ops = *new std::map<std::string, std::string>{
      {"SokGroupLookup", "SokPackedGroupLookup"},
      {"SokGroupLookupAhead", "SokPackedGroupLookupAhead"},
      {"SokGroupRoute", "SokPackedGroupRoute"},
  };
  return ops;
}

using Output = tf::NodeBuilder::NodeOut;

// The inputs of a lookup op.
struct GroupOutputs {
  std::vector<Output> handles;
  std::vector<std::vector<Output>> ids, bags, dense_shapes, weights;  // by lookup
  Output training;
};

// The tensors of the lookups for which `of` has `value`.
std::vector<Output> Some(const std::vector<std::vector<Output>>& all, const std::vector<bool>& of,
                         bool value) {
  std::vector<Output> some;
  for (size_t l = 0; l < all.size(); ++l) {
    if (of[l] == value) some.insert(some.end(), all[l].begin(), all[l].end());
  }
  return some;
}

// The attribute with only those of its values, one for each lookup, for which `of` has `value`.
tf::AttrValue SomeOf(const tf::AttrValue& attribute, const std::vector<bool>& of, bool value) {
  const auto& from = attribute.list();
  tf::AttrValue some;
  auto& list = *some.mutable_list();
  for (int l = 0; l < static_cast<int>(of.size()); ++l) {
    if (of[l] != value) continue;
    if (l < from.s_size()) list.add_s(from.s(l));
    if (l < from.i_size()) list.add_i(from.i(l));
    if (l < from.b_size()) list.add_b(from.b(l));
    if (l < from.type_size()) list.add_type(from.type(l));
  }
  return some;
}

class BatchPacker {
 public:
  // `in_function`: whether the graph is that of a function.
  BatchPacker(PlacedGraph* placed, bool in_function) : placed_(*placed), in_function_(in_function) {}

  tf::Status PackAll() {
    std::vector<tf::Node*> nodes;
    for (tf::Node* node : placed_.graph().op_nodes()) {
      if (PackedOps().count(node->type_string()) > 0 && placed_.IsOn(*node, "GPU")) nodes.push_back(node);
    }
    for (tf::Node* node : nodes) TF_RETURN_IF_ERROR(Pack(node));
    return tf::Status();
  }

 private:
  static tf::Status Inputs(const tf::Node& node, GroupOutputs* inputs);
  // Whether the lookup's tensors come from this process's CPU.
  bool IsOnHost(const tf::Node& node, const GroupOutputs& inputs, size_t l);
  tf::Status Pack(tf::Node* node);
  tf::Status AddPack(const tf::Node& node, const std::string& name, const GroupOutputs& inputs,
                     const std::vector<bool>& packed, tf::Node** pack);
  tf::Status Replace(tf::Node* node, const std::string& name, const GroupOutputs& inputs,
                     const std::vector<bool>& packed, tf::Node* pack);

  PlacedGraph& placed_;
  const bool in_function_;
};

tf::Status BatchPacker::Inputs(const tf::Node& node, GroupOutputs* inputs) {
  std::vector<const tf::Edge*> edges;
  TF_RETURN_IF_ERROR(node.input_edges(&edges));
  std::vector<std::string> layouts;
  std::vector<bool> weighted, placed;
  int num_tables;
  TF_RETURN_IF_ERROR(tf::GetNodeAttr(node.attrs(), "layouts", &layouts));
  TF_RETURN_IF_ERROR(tf::GetNodeAttr(node.attrs(), "weighted", &weighted));
  TF_RETURN_IF_ERROR(tf::GetNodeAttr(node.attrs(), "placed", &placed));
  TF_RETURN_IF_ERROR(tf::GetNodeAttr(node.attrs(), "num_tables", &num_tables));
  placed.resize(layouts.size(), false);
  weighted.resize(layouts.size(), false);
  auto next = edges.begin();
  const auto take = [&](int number, std::vector<Output>* outputs) {
    for (; number > 0 && next != edges.end(); --number, ++next) {
      outputs->emplace_back((*next)->src(), (*next)->src_output());
    }
  };
  take(num_tables, &inputs->handles);
  for (auto* of : {&inputs->ids, &inputs->bags, &inputs->dense_shapes, &inputs->weights}) {
    of->resize(layouts.size());
    for (size_t l = 0; l < layouts.size(); ++l) {
      const bool sparse = layouts[l] == "sparse";
      const int bags = (layouts[l] == "dense" ? 0 : 1) + (placed[l] ? 1 : 0);
      take(of == &inputs->ids            ? 1
           : of == &inputs->bags         ? bags
           : of == &inputs->dense_shapes ? (sparse ? 1 : 0)
                                         : (weighted[l] ? 1 : 0),
           &(*of)[l]);
    }
  }
  std::vector<Output> training;
  take(1, &training);
  if (training.empty() || next != edges.end()) {
    return tf::errors::InvalidArgument(node.name(), ": the attributes do not fit the ", edges.size(),
                                       " inputs");
  }
  inputs->training = training[0];
  return tf::Status();
}

bool BatchPacker::IsOnHost(const tf::Node& node, const GroupOutputs& inputs, size_t l) {
  for (const auto* of : {&inputs.ids, &inputs.bags, &inputs.dense_shapes, &inputs.weights}) {
    for (const Output& output : (*of)[l]) {
      if (!placed_.IsOn(*output.node, "CPU") || !placed_.AreTogether(*output.node, node)) return false;
    }
  }
  return true;
}

tf::Status BatchPacker::Pack(tf::Node* node) {
  GroupOutputs inputs;
  TF_RETURN_IF_ERROR(Inputs(*node, &inputs));
  std::vector<bool> packed;
  std::string name = "/packed_";
  for (size_t l = 0; l < inputs.ids.size(); ++l) {
    packed.push_back(IsOnHost(*node, inputs, l));
    name += packed[l] ? '1' : '0';
  }
  if (std::find(packed.begin(), packed.end(), true) == packed.end()) return tf::Status();
  // A session keeps kernels by their nodes' names for all its graphs, so the name says what is packed. In a
  // function, which keeps no kernels, results are found by the name of the node.
  tf::Node* pack = nullptr;
  TF_RETURN_IF_ERROR(AddPack(*node, node->name() + name + "/batch", inputs, packed, &pack));
  return Replace(node, in_function_ ? node->name() : node->name() + name, inputs, packed, pack);
}

tf::Status BatchPacker::AddPack(const tf::Node& node, const std::string& name, const GroupOutputs& inputs,
                                const std::vector<bool>& packed, tf::Node** pack) {
  tf::NodeBuilder builder(name, "SokPackBatch");
  const std::vector<Output> ids = Some(inputs.ids, packed, true);
  const std::vector<Output> bags = Some(inputs.bags, packed, true);
  const std::vector<Output> dense_shapes = Some(inputs.dense_shapes, packed, true);
  const std::vector<Output> weights = Some(inputs.weights, packed, true);
  builder.Input(ids).Input(bags).Input(dense_shapes).Input(weights);
  for (const char* const one :
       {"layouts", "table_of", "combiners", "weighted", "slots", "positive_weights_only", "placed", "Tids"}) {
    builder.Attr(one, SomeOf(*node.attrs().Find(one), packed, true));
  }
  builder.Attr("num_tables", *node.attrs().Find("num_tables")).Attr("dims", *node.attrs().Find("dims"));
  builder.Attr("num_outputs", static_cast<int>(ids.size()))
      .Attr("num_bags", static_cast<int>(bags.size()))
      .Attr("num_sparse", static_cast<int>(dense_shapes.size()))
      .Attr("num_weights", static_cast<int>(weights.size()));
  return placed_.Add(&builder, *ids[0].node, pack);
}

tf::Status BatchPacker::Replace(tf::Node* node, const std::string& name, const GroupOutputs& inputs,
                                const std::vector<bool>& packed, tf::Node* pack) {
  tf::NodeBuilder builder(name, PackedOps().at(node->type_string()));
  const std::vector<Output> bags = Some(inputs.bags, packed, false);
  const std::vector<Output> weights = Some(inputs.weights, packed, false);
  std::vector<Output> dense_shapes = Some(inputs.dense_shapes, std::vector<bool>(packed.size()), false);
  builder.Input(inputs.handles).Input(pack).Input(Some(inputs.ids, packed, false)).Input(bags);
  builder.Input(dense_shapes).Input(weights).Input(inputs.training);
  for (const auto& [attribute, value] : node->attrs()) {
    if (attribute == "Tids") {
      builder.Attr(attribute, SomeOf(value, packed, false));
    } else if (attribute != "num_bags" && attribute != "num_weights") {
      builder.Attr(attribute, value);
    }
  }
  builder.Attr("packed", packed)
      .Attr("num_bags", static_cast<int>(bags.size()))
      .Attr("num_weights", static_cast<int>(weights.size()));
  tf::Node* replacing = nullptr;
  TF_RETURN_IF_ERROR(placed_.Add(&builder, *node, &replacing));
  tf::Graph& graph = placed_.graph();
  for (const tf::Edge* edge : node->in_edges()) {
    if (edge->IsControlEdge()) graph.AddControlEdge(edge->src(), replacing);
  }
  const std::vector<const tf::Edge*> outputs(node->out_edges().begin(), node->out_edges().end());
  for (const tf::Edge* edge : outputs) {
    graph.AddEdge(replacing, edge->src_output(), edge->dst(), edge->dst_input());
  }
  graph.RemoveNode(node);
  return tf::Status();
}

class PackBatchesPass : public tf::GraphOptimizationPass {
 public:
  tf::Status Run(const tf::GraphOptimizationPassOptions& options) override {
    return ChangeIfOnGpu(
        options, [&](PlacedGraph* graph) { return BatchPacker(graph, options.is_function_graph).PackAll(); });
  }
};

REGISTER_OPTIMIZATION(tf::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 0, PackBatchesPass);

}  // namespace
}  // namespace sok
