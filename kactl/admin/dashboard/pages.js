// The pages by the first part of the address behind `#/`. Each draws into an element until its signal aborts.

import { audit } from "./page_audit.js";
import { broker, brokers } from "./page_brokers.js";
import { controller } from "./page_controller.js";
import { elect } from "./page_elect.js";
import { elections } from "./page_elections.js";
import { forensics } from "./page_forensics.js";
import { machines } from "./page_machines.js";
import { now } from "./page_now.js";
import { partition } from "./page_partition.js";
import { partitions, shards } from "./page_partitions.js";
import { reassign } from "./page_reassign.js";
import { whatif } from "./page_whatif.js";

export const PAGES = {
  now: { title: "Now", draw: now },
  elections: { title: "Election path", draw: elections },
  partitions: { title: "Partitions", draw: partitions },
  shards: { title: "Shards", draw: shards },
  partition: { title: "Partition", draw: partition, listed: false },
  brokers: { title: "Brokers", draw: brokers },
  broker: { title: "Broker", draw: broker, listed: false },
  controller: { title: "Controller", draw: controller },
  elect: { title: "Elect", draw: elect },
  reassign: { title: "Reassign", draw: reassign },
  machines: { title: "State machines", draw: machines },
  whatif: { title: "What-if", draw: whatif },
  audit: { title: "Audit", draw: audit },
  forensics: { title: "Forensics", draw: forensics },
};
